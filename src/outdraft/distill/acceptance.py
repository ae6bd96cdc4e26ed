"""How much of a draft would be accepted, from the target's own held-out texts, all at once.

Where a draft agrees with the text it is accepted, so along the target's own text every guess can
be computed beforehand: guess (j, i) is what a round drafts for token i as its place j. The rounds
an engine would make are then counted by walking over the text. At temperature 0 this is exact;
at others the noise that drew the text is drawn again, given what it drew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from outdraft.distill.shards import Batch, Corpus
from outdraft.distill.target import Target
from outdraft.engine.sequence import Acceptance

# Logits (N, draft vocabulary), which of the batch's answer tokens each row is for, the draft
# vocabulary's ids (None: all) → the target's ids (N,).
Draw = Callable[[Tensor, Tensor, Tensor | None], Tensor]

JUDGED = ("chat", "code", "summarization")  # a draft is judged by these together
_BATCH_TOKENS = {"cuda": 1 << 14, "cpu": 1 << 11}


class Draft(Protocol):
    """What both kinds of draft can do."""

    def guesses(self, batch: Batch, target: Target, num_steps: int, draw: Draw) -> Tensor: ...


def greedy(logits: Tensor, rows: Tensor, vocabulary: Tensor | None) -> Tensor:
    best = logits.argmax(1)
    return best if vocabulary is None else vocabulary[best]


def coupled(batch: Batch, target: Target, temperature: float, seed: int) -> Draw:
    """Draws with the noise that the target drew with, as the `coupled` rule does.

    Given that token x won, the winning score is a Gumbel variable around the logsumexp, and each
    other score one around its own logit that stayed below.
    """
    hidden, _ = target.network(batch.tokens)
    logits = target.network.logits(hidden[:, :-1][batch.is_answer[:, 1:]]).float() / temperature
    generator = torch.Generator(logits.device).manual_seed(seed)

    def gumbel(like: Tensor) -> Tensor:
        return torch.empty_like(like).exponential_(generator=generator).log_().neg_()

    won = batch.tokens[batch.is_answer][:, None]
    total = logits.logsumexp(1, keepdim=True)
    top = total + gumbel(total)
    scores = logits + gumbel(logits)
    scores = -torch.logaddexp(-scores, -top)  # below the winner
    noise = scores.scatter_(1, won, top) - logits

    def draw(own: Tensor, rows: Tensor, vocabulary: Tensor | None) -> Tensor:
        mine = noise[rows] if vocabulary is None else noise[rows[:, None], vocabulary]
        return greedy(own / temperature + mine, rows, vocabulary)

    return draw


@torch.no_grad()
def measure_acceptance(
    draft: Draft, target: Target, held_out: Corpus, k: int, seed: int = 0
) -> dict[str, Any]:
    """A summary for each temperature."""
    result: dict[str, Any] = {}
    device = target.device
    temperatures = held_out.temperatures.tolist()
    by_temperature: dict[float, list[int]] = {}
    for index, temperature in enumerate(temperatures):
        by_temperature.setdefault(round(temperature, 3), []).append(index)
    for temperature, members in sorted(by_temperature.items()):
        found: dict[str, Acceptance] = {}
        for which in _parts(held_out, members, _BATCH_TOKENS.get(device.type, 1 << 11)):
            batch = held_out.batch(which, device)
            draw = coupled(batch, target, temperature, seed) if temperature else greedy
            guesses = draft.guesses(batch, target, k, draw)
            hits = (guesses == batch.tokens).cpu()
            for row, index in enumerate(which):
                walk(
                    hits[:, row],
                    int(held_out.prompt_lengths[index]),
                    int(held_out.lengths[index]),
                    found.setdefault(held_out.categories[index], Acceptance()),
                )
        result[f"{temperature:g}"] = summary(found)
    return result


def _parts(corpus: Corpus, members: Sequence[int], max_tokens: int) -> list[list[int]]:
    ordered = sorted(members, key=lambda index: int(corpus.lengths[index]))
    parts: list[list[int]] = []
    for index in ordered:
        if parts and (len(parts[-1]) + 1) * int(corpus.lengths[index]) <= max_tokens:
            parts[-1].append(index)
        else:
            parts.append([index])
    return parts


def walk(hits: Tensor, prompt_length: int, length: int, into: Acceptance) -> None:
    """Counts the rounds of one text. hits (k, T): whether guess (j, i) is token i."""
    table = hits.tolist()
    last = prompt_length  # the first answer token comes with the prompt
    while last + 2 < length:  # a round's last token is the target's own
        drafted = min(len(table), length - last - 2)
        accepted = 0
        while accepted < drafted and table[accepted][last + 1 + accepted]:
            accepted += 1
        into.record(drafted, accepted)
        last += accepted + 1


def summary(found: Mapping[str, Acceptance]) -> dict[str, Any]:
    """From acceptance by category: all together, those judged by together, each."""
    judged, everything = Acceptance(), Acceptance()
    for category, one in found.items():
        everything.add(one)
        if category in JUDGED:
            judged.add(one)
    return {
        "all": figures(everything),
        "judged": figures(judged),
        "categories": {category: figures(one) for category, one in sorted(found.items())},
    }


def figures(one: Acceptance) -> dict[str, Any]:
    """first: the share of rounds whose first drafted token was accepted."""
    first = one.accepted_per_position[0] / one.drafted_per_position[0] if one.num_drafts else None
    return {
        "first": first,
        "length": one.length,
        "rate": one.rate,
        "rounds": one.num_drafts,
        "accepted_per_position": list(one.accepted_per_position),
    }
