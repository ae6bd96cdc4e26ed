"""What slices without drafts cost a server, in tokens per second of decoding.

    python benchmarks/canary_cost.py [--texts 60] [--tokens 192] [--share 0.02]

Two engines in one process write the same texts, one with the canary and one without, a step of one
after a step of the other: whatever the machine does meets both. From text to text they change
roles. CPU seconds of one thread. Three answers, each with a 95 % bootstrap interval over texts:

    direct    seconds without the canary / with it, over all texts
    by kind   the texts are the same, so their steps are: the number of steps of each kind
              (drafting, in a slice, right after one), times what a step of that kind takes
    by pace   the same without the chance of where rounds end: tokens of slices would have taken
              what tokens of the same texts take on average

The first is what a user has, and holds the chance of these texts: a slice of three tokens saves one
round or two. The last is the closest. It takes slices to be drawn without regard to the text, and a
drafting step to cost the same with and without the canary; the last line says how far that holds.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from arms import machine_line, ratio_text
from outdraft import Engine, SamplingParams, Speculation, load_engine
from outdraft.engine.draft_lengths import EVERYBODY
from outdraft.server.canary import Canary

DRAFTING, IN_SLICE, AFTER, PROMPT = "drafting", "in a slice", "after one", "prompt"
_TRIMMED = 0.05  # of the steps at each end: those that the machine held up
_DRAWS = 4000


@dataclass(slots=True)
class Text:
    """Of one side: what its steps took, by kind."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    tokens: list[int] = field(default_factory=list)
    num_decoded: int = 0  # tokens of steps without prompts

    @property
    def decoding_s(self) -> float:
        return sum(sum(each) for kind, each in self.seconds.items() if kind != PROMPT)


class Writer:
    """One side of a text: an engine, and its canary if it has one."""

    def __init__(self, engine: Engine, canary: Canary) -> None:
        self._engine, self._canary, self._was_in = engine, canary, False
        self.text = Text()

    def step(self) -> bool:
        """False when the text has ended. The canary's own work counts too."""
        started, in_slice = time.thread_time(), self._canary.in_slice
        step = self._engine.step(inverted=EVERYBODY if in_slice else None)
        if step.stats is not None:
            seconds = time.thread_time() - started
            self._canary.observe(replace(step.stats, seconds=seconds), step.updates)
            kind = IN_SLICE if in_slice else AFTER if self._was_in else DRAFTING
            kind = kind if step.stats.is_decoding else PROMPT
            self.text.seconds[kind].append(time.thread_time() - started)
            self.text.num_decoded += step.stats.num_decoded if kind != PROMPT else 0
        self.text.tokens += [token for each in step.updates for token in each.tokens]
        self._was_in = in_slice
        return self._engine.has_work


def write(
    engines: Sequence[Engine], canaries: Sequence[Canary], number: int, tokens: int
) -> tuple[Text, Text]:
    """The same text by both."""
    params = SamplingParams(max_tokens=tokens, ignore_eos=True)
    asked = [{"role": "user", "content": f"{number}: write a few lines about the sea."}]
    writers = []
    for engine, canary in zip(engines, canaries, strict=True):
        engine.forget()
        engine.add_request(engine.tokenizer.apply_chat(asked), params, request_id=f"r{number}")
        writers.append(Writer(engine, canary))
    working = list(writers)
    while working:
        working = [each for each in working if each.step()]
    first, second = (each.text for each in writers)
    assert first.tokens == second.tokens, "a text changed"
    return first, second


def bootstrap(
    statistic: Callable[[Sequence[int]], float], count: int
) -> tuple[float, float, float]:
    """Of a statistic of the numbers of texts: itself and its interval."""
    draw = np.random.default_rng(0)
    drawn = [statistic(draw.integers(0, count, count).tolist()) for _ in range(_DRAWS)]
    low, high = np.quantile(drawn, (0.025, 0.975))
    return statistic(range(count)), float(low), float(high)


def trimmed_mean(parts: Sequence[np.ndarray]) -> float:
    values = np.sort(np.concatenate(parts))
    if not len(values):
        return 0.0
    cut = int(_TRIMMED * len(values))
    return float(values[cut : len(values) - cut].mean())


def report(texts: Sequence[tuple[Text, Text]]) -> None:
    """Each with and without the canary."""
    count = len(texts)
    spent = np.array([[each.decoding_s for each in pair] for pair in texts])
    taken = [
        {
            kind: [np.array(each.seconds.get(kind, [])) for each in pair]
            for kind in (DRAFTING, IN_SLICE, AFTER)
        }
        for pair in texts
    ]

    def means(drawn: Sequence[int]) -> dict[str, float]:
        return {
            kind: trimmed_mean([part for at in drawn for part in taken[at][kind]])
            for kind in (DRAFTING, IN_SLICE, AFTER)
        }

    def by_kind(drawn: Sequence[int]) -> float:
        step_s, sides = means(drawn), [0.0, 0.0]
        for at in drawn:
            for kind, parts in taken[at].items():
                for side, part in enumerate(parts):
                    sides[side] += len(part) * step_s[kind]
        return sides[1] / sides[0]

    def direct(drawn: Sequence[int]) -> float:
        both = spent[list(drawn)].sum(0)
        return float(both[1] / both[0])

    def by_pace(drawn: Sequence[int]) -> float:
        step_s = means(drawn)
        num_steps = {
            kind: [sum(len(taken[at][kind][side]) for at in drawn) for side in (0, 1)]
            for kind in step_s
        }
        tokens = sum(texts[at][1].num_decoded for at in drawn)
        pace = num_steps[DRAFTING][1] * step_s[DRAFTING] / tokens
        lost = num_steps[IN_SLICE][0] * (step_s[IN_SLICE] - pace)  # a token a step
        lost += num_steps[AFTER][0] * (step_s[AFTER] - step_s[DRAFTING])
        return 1 - lost / sum(count[0] * step_s[kind] for kind, count in num_steps.items())

    def drafting(drawn: Sequence[int]) -> float:
        sides = [trimmed_mean([taken[at][DRAFTING][side] for at in drawn]) for side in (0, 1)]
        return sides[0] / sides[1]

    steps = {
        name: {kind: sum(len(each[kind][side]) for each in taken) for kind in taken[0]}
        for side, name in enumerate(("with", "without"))
    }
    step_ms = {kind: round(1e3 * each, 2) for kind, each in means(range(count)).items()}
    in_slices = sum(each[IN_SLICE][0].sum() for each in taken) / spent[:, 0].sum()
    print(f"tokens per CPU second with the canary / without, n={count} texts")
    print(f"  direct                           {ratio_text(bootstrap(direct, count), 4)}")
    print(f"  by kind                          {ratio_text(bootstrap(by_kind, count), 4)}")
    print(f"  by pace                          {ratio_text(bootstrap(by_pace, count), 4)}")
    print(f"  steps {steps}; ms {step_ms}; share of time in slices {in_slices:.4f}")
    print(f"  a drafting step, with / without  {ratio_text(bootstrap(drafting, count), 4)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--texts", type=int, default=60)
    parser.add_argument("--tokens", type=int, default=192)
    parser.add_argument("--share", type=float, default=0.02)
    parser.add_argument("--limit-s", type=float, default=540.0, help="no text begins after this")
    args = parser.parse_args()
    head = Speculation("eagle", k=5, draft="smollm2-135m-eagle", quantization="int8")
    engines = [load_engine(speculation=head, threads=1, kv_cache_bytes=128 << 20) for _ in range(2)]
    torch.set_num_threads(1)
    print(machine_line(), flush=True)
    with_canary, without = Canary(args.share), Canary(0.0)
    write(engines, (Canary(0.0), Canary(0.0)), -1, 16)  # warms up
    texts, started = [], time.monotonic()
    for number in range(args.texts):
        if time.monotonic() - started > args.limit_s:
            break
        roles = (with_canary, without)[:: 1 if number % 2 else -1]
        first, second = write(engines, roles, number, args.tokens)
        texts.append((first, second) if number % 2 else (second, first))
    report(texts)


if __name__ == "__main__":
    main()
