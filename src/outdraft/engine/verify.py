"""Verification: drafts and the target's logits in, emitted tokens out. Pure functions.

coupled    The target draws every row with that position's own noise; drafts are accepted as
           far as they equal the draws. The text never depends on the drafts.
rejection  Draft d is accepted with probability min(1, p(d)/q(d)); the first one refused is
           replaced by a draw from max(p - q, 0). The *distribution* is the target's.
typical    d is accepted when p(d) ≥ min(threshold, alpha · exp(-entropy of p)). Lossy: the
           text is no longer a draw from the target.
"""

from collections.abc import Sequence as Seq

import torch
from torch import Tensor

from outdraft.engine.sampling import Stream, draw, noise_key, probabilities, row_noise, uniforms
from outdraft.engine.step import Round


def verify(
    rule: str,
    processed: Tensor,
    round_: Round,
    *,
    posterior_threshold: float = 0.09,
    posterior_alpha: float = 0.3,
) -> list[list[int]]:
    """Emitted tokens of every sequence: the accepted drafts, then one of the target's own.

    processed (R, V) as `sampling.processed_logits` gives it.
    """
    if rule == "coupled" or not any(round_.drafts):
        return keep_agreeing(round_, draw(processed, round_.rows).tolist())
    if rule == "rejection":
        return _rejection(processed, round_)
    if rule == "typical":
        return _typical(processed, round_, posterior_threshold, posterior_alpha)
    raise ValueError(f"no such rule: {rule}")


def keep_agreeing(round_: Round, drawn: Seq[int]) -> list[list[int]]:
    """The target's draws (one per row) up to the first that differs from the draft, inclusive."""
    emitted = []
    for draft, tokens in zip(round_.drafts, round_.by_sequence(drawn), strict=True):
        count = 0
        while count < len(draft) and tokens[count] == draft[count]:
            count += 1
        emitted.append([*tokens[: count + 1]])
    return emitted


def acceptance_mask(p: Tensor, q: Tensor, coins: Tensor) -> Tensor:
    """The rejection rule for one token each: p, q its probabilities, coins in (0, 1)."""
    return coins * q < p


def residual(p: Tensor, q: Tensor) -> Tensor:
    """(R, V): what is left to draw from after a refusal, normalized."""
    left = (p - q).clamp_min_(0)
    mass = left.sum(1, keepdim=True)
    # p == q leaves nothing, but then nothing is refused either: any distribution will do.
    return torch.where(mass > 0, left / mass.clamp_min(1e-30), p)


def typical_mask(p_all: Tensor, p: Tensor, threshold: float, alpha: float) -> Tensor:
    """The typical rule: p_all (R, V) the distributions, p (R,) the drafts' probabilities."""
    entropy = -torch.special.xlogy(p_all, p_all).sum(1)
    return p >= torch.clamp(alpha * torch.exp(-entropy), max=threshold)


def _rejection(processed: Tensor, round_: Round) -> list[list[int]]:
    device, size = processed.device, processed.shape[1]
    p_all = probabilities(processed, round_.rows)
    draft_rows, tokens = _draft_rows(round_, device)
    p = p_all[draft_rows, tokens]
    if round_.draft_probs is None:  # a proposer that is sure of its tokens
        q = torch.ones_like(p)
        q_all = torch.zeros(len(tokens), size, device=device)
        q_all.scatter_(1, tokens[:, None], 1.0)
    else:
        q_all = round_.draft_probs
        q = q_all.gather(1, tokens[:, None])[:, 0]
    judged = [round_.rows[row] for row in round_.draft_rows]
    keys = [noise_key(row.sequence.seed, row.position, Stream.ACCEPT) for row in judged]
    accepted = acceptance_mask(p, q, uniforms(keys, 1, device)[:, 0])
    # Where a draft is refused its row draws from the residual; elsewhere from p itself.
    source = p_all.clone()
    source[draft_rows] = residual(p_all[draft_rows], q_all)
    noise = row_noise(round_.rows, size, device)
    scores = source.log() if noise is None else source.log() + noise
    corrections: list[int] = scores.argmax(1).tolist()
    return _emit(round_, draft_rows, accepted, corrections)


def _typical(processed: Tensor, round_: Round, threshold: float, alpha: float) -> list[list[int]]:
    device = processed.device
    p_all = probabilities(processed, round_.rows)
    draft_rows, tokens = _draft_rows(round_, device)
    accepted = typical_mask(
        p_all.index_select(0, draft_rows), p_all[draft_rows, tokens], threshold, alpha
    )
    return _emit(round_, draft_rows, accepted, draw(processed, round_.rows).tolist())


def _draft_rows(round_: Round, device: torch.device) -> tuple[Tensor, Tensor]:
    """The rows that judge a draft token, and those tokens: (all drafts,) each."""
    tokens = [token for draft in round_.drafts for token in draft]
    return torch.tensor(round_.draft_rows, device=device), torch.tensor(tokens, device=device)


def _emit(
    round_: Round, draft_rows: Tensor, accepted: Tensor, corrections: Seq[int]
) -> list[list[int]]:
    """`accepted`: one per draft token. `corrections`: the target's own token at each row."""
    by_row = torch.zeros(len(round_.rows), dtype=torch.bool, device=accepted.device)
    by_row[draft_rows] = accepted
    emitted = []
    for draft, verdicts, own in zip(
        round_.drafts,
        round_.by_sequence(by_row.tolist()),
        round_.by_sequence(corrections),
        strict=True,
    ):
        count = verdicts.index(False)  # the last row judges no draft
        emitted.append([*draft[:count], own[count]])
    return emitted
