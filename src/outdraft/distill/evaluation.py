"""Acceptance of a draft on held-out prompts: estimated along texts, and measured in the engine.

The estimate needs no decoding. A draft token is accepted where it agrees with the target's text, so
along that text every guess can be computed at once: guess (j, i) is what a round drafts for token i
as its draft position j. Counting then walks over the rounds that an engine would make. At
temperature 0 this is exact. At others the noise that sampled the text is not known; it is sampled
again, given the tokens it led to.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from outdraft.acceptance import Acceptance
from outdraft.distill.data.prompts import ChatFormat
from outdraft.distill.data.shards import Corpus, TextBatch
from outdraft.distill.options import METHODS
from outdraft.distill.settings import DistillSettings, OnProgress
from outdraft.distill.target import Target
from outdraft.engine.assemble import load_engine
from outdraft.engine.sequence import SamplingParams
from outdraft.speculation import Speculation
from outdraft.workload.prompt import Prompt

# Logits (N, draft vocabulary), which of the batch's answer tokens each row is for, the draft
# vocabulary's ids (None: all) → ids of the target (N,).
Draw = Callable[[Tensor, Tensor, Tensor | None], Tensor]

JUDGED = ("chat", "code", "summarization")  # categories whose total is a draft's main figure
_TEMPERATURES = (0.0, 1.0)  # in the engine
_GPU_BATCH_TOKENS, _CPU_BATCH_TOKENS = 1 << 14, 1 << 11


class Drafter(Protocol):
    """A small model or a head in training."""

    def guesses(self, batch: TextBatch, target: Target, num_steps: int, draw: Draw) -> Tensor:
        """(num_steps, B, T): what is drafted for each token at each draft position; else -1."""
        ...


def draw_greedily(logits: Tensor, rows: Tensor, vocabulary: Tensor | None) -> Tensor:
    best = logits.argmax(1)
    return best if vocabulary is None else vocabulary[best]


def draw_coupled(batch: TextBatch, target: Target, temperature: float) -> Draw:
    """Draws with noise that leads the target to this text, as the `coupled` rule does.

    Given that token x won, the winning score is a Gumbel variable around the logsumexp, and each
    other score is one around its own logit that stayed below.
    """
    hidden, _ = target.network(batch.tokens)
    logits = target.network.logits(hidden[:, :-1][batch.is_answer[:, 1:]]).float() / temperature
    generator = torch.Generator(logits.device).manual_seed(0)

    def gumbel(like: Tensor) -> Tensor:
        return torch.empty_like(like).exponential_(generator=generator).log_().neg_()

    winners = batch.tokens[batch.is_answer][:, None]
    total = logits.logsumexp(1, keepdim=True)
    top = total + gumbel(total)
    scores = logits + gumbel(logits)
    scores = -torch.logaddexp(-scores, -top)  # below the winner
    noise = scores.scatter_(1, winners, top) - logits

    def draw(logits: Tensor, rows: Tensor, vocabulary: Tensor | None) -> Tensor:
        own_noise = noise[rows] if vocabulary is None else noise[rows[:, None], vocabulary]
        return draw_greedily(logits / temperature + own_noise, rows, vocabulary)

    return draw


@torch.no_grad()
def estimate_acceptance(draft: Drafter, target: Target, held_out: Corpus, k: int) -> dict[str, Any]:
    """A summary for each temperature, counted along the held-out texts."""
    device = target.device
    batch_tokens = _GPU_BATCH_TOKENS if device.type == "cuda" else _CPU_BATCH_TOKENS
    temperatures = [round(each, 3) for each in held_out.temperatures.tolist()]
    result: dict[str, Any] = {}
    for temperature in sorted(set(temperatures)):
        members = [index for index, each in enumerate(temperatures) if each == temperature]
        counts: dict[str, Acceptance] = {}
        for part in held_out.by_length(members, batch_tokens):
            batch = held_out.batch(part, device)
            draw = draw_coupled(batch, target, temperature) if temperature else draw_greedily
            hits = (draft.guesses(batch, target, k, draw) == batch.tokens).cpu()
            for row, index in enumerate(part):
                count_rounds(
                    hits[:, row],
                    held_out.prompt_lengths[index],
                    held_out.lengths[index],
                    counts.setdefault(held_out.categories[index], Acceptance()),
                )
        result[f"{temperature:g}"] = _summarize(counts)
    return result


def count_rounds(hits: Tensor, prompt_length: int, length: int, into: Acceptance) -> None:
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


def measure_acceptance(
    settings: DistillSettings,
    draft: Path,
    prompts: Sequence[Prompt],
    on_progress: OnProgress,
    *,
    limit_s: float = math.inf,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, Any]:
    """A summary for each temperature, counted by the engine while it answers the prompts in their
    order, until the time is up."""
    started = clock()
    on_progress("evaluate", 0.0, "loading")
    k, method = settings.train_settings.k, METHODS[settings.kind]
    engine = load_engine(
        settings.target,
        Speculation(method=method, k=k, draft=str(draft)),
        device=settings.device,
        threads=settings.threads,
        max_num_seqs=8,
    )
    chat, max_tokens = ChatFormat(engine.tokenizer), settings.evaluate_tokens
    asked: dict[str, tuple[float, Prompt]] = {}
    for seed, prompt in enumerate(prompts):
        tokens = chat.encode_prompt(prompt)
        if len(tokens) + max_tokens > engine.max_context:
            continue
        for temperature in _TEMPERATURES:
            params = SamplingParams(temperature=temperature, max_tokens=max_tokens, seed=seed)
            asked[engine.add_request(tokens, params)] = temperature, prompt
    counts: dict[float, dict[str, Acceptance]] = {each: {} for each in _TEMPERATURES}
    done = 0
    # One answer at least, however little time there is.
    while engine.has_work and (not done or clock() - started < limit_s):
        for update in engine.step():
            if update.generation is None:
                continue
            temperature, prompt = asked.pop(update.request_id)
            acceptance = counts[temperature].setdefault(prompt.category, Acceptance())
            acceptance.add(update.generation.acceptance)
            done += 1
            share = max(done / (done + len(asked)), min((clock() - started) / limit_s, 1.0))
            on_progress("evaluate", share, f"{done} answers, the last to {prompt.id}")
    if asked:
        words = f"time was up after {done} of {done + len(asked)} answers"
        on_progress("note", 1.0, f"{words}; --stage evaluate has its own time for all of them")
    return {f"{temperature:g}": _summarize(each) for temperature, each in counts.items()}


def _summarize(counts: Mapping[str, Acceptance]) -> dict[str, Any]:
    """By category, of all categories, and of those in JUDGED."""
    judged = (one for category, one in counts.items() if category in JUDGED)
    return {
        "all": figures(Acceptance.total(counts.values())),
        "judged": figures(Acceptance.total(judged)),
        "categories": {category: figures(one) for category, one in sorted(counts.items())},
    }


def figures(acceptance: Acceptance) -> dict[str, Any]:
    """first: the share of rounds whose first draft token was accepted."""
    rates = acceptance.rate_per_position
    return {
        "first": rates[0] if rates else None,
        "length": acceptance.length,
        "rate": acceptance.rate,
        "rounds": acceptance.num_drafts,
        "accepted_per_position": list(acceptance.accepted_per_position),
    }
