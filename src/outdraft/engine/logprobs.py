"""Log-probabilities of tokens and of their likeliest alternatives."""

import math

import torch
from torch import Tensor

from outdraft.engine.outputs import TokenLogprob
from outdraft.engine.sequence import Sequence


def token_logprobs(logits: Tensor, tokens: list[int], num_top: int) -> list[TokenLogprob]:
    """logits (n, V), tokens n; as many alternatives as `num_top`."""
    table = logits.log_softmax(1)
    at = torch.tensor(tokens, device=table.device)[:, None]
    own = table.gather(1, at)[:, 0].tolist()
    tops: list[tuple[tuple[int, float], ...]] = [()] * len(tokens)
    if num_top:
        best = table.topk(min(num_top, table.shape[1]), dim=1)
        tops = [
            # Cut-off tokens are no alternatives: their logprob is -inf.
            tuple(pair for pair in zip(ids, values, strict=True) if pair[1] > -math.inf)
            for ids, values in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ]
    return [TokenLogprob(*each) for each in zip(tokens, own, tops, strict=True)]


def score_prompt(
    scores: list[TokenLogprob | None], sequence: Sequence, start: int, logits: Tensor
) -> None:
    """Appends to `scores` the logprobs of the tokens after those at `start`, `start` + 1, …

    logits (n, V) are of these n positions. After a preemption rows come a second time; tokens
    that have a score keep it.
    """
    first = start + 1  # the token that the first row predicts
    tokens = sequence.tokens[len(scores) : first + len(logits)]
    if tokens:
        num_top = sequence.params.prompt_logprobs or 0
        scores += token_logprobs(logits[len(scores) - first :], tokens, num_top)
