"""Method auto against off and fixed settings: throughput, P99 of e2e, and the same text.

    python benchmarks/auto.py --journal FILE [--rounds 6] [--tokens 48] [--limit-s 540]
                              [--concurrency 1,4,16] [--cells copying,code,chat,creative,mix]
                              [--arms off,auto,…]
    python benchmarks/auto.py --journal FILE --report

SmolLM2-135M with the shipped drafts in int8, built-in prompts that no draft was trained on, texts
of half to one and a half times --tokens, the same for all arms. When a text ends the next one
starts. A block has two or four times as many texts that count as run at a time, and others after
them, which keep all places taken until the last one that counts has ended. So a place was busy for
exactly the seconds of its texts, and tokens per second are those of the texts that count over the
mean time that a place spent on them. (Tokens until some moment would favour arms whose texts are
alike: where some end early, more prompts are read by then, and more slow texts are under way.)

All arms write the block's texts at once, step by step in one process: the next step is of the arm
that has written the least share of its tokens, and each arm has a clock of its own, which its own
steps move. So whatever the machine does meets all of them. They share the weights; KV caches are
made anew for each round, because where one lies in memory changes the speed by some 4 %. Method
auto keeps what it has learned from round to round, as a server does that runs for days; its first
round is reported apart. What was measured is in the journal, so that a run that was stopped, or
reached --limit-s, goes on there; it learns anew then.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import random
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arms import machine_line, ratio, ratio_text
from outdraft import Engine, SamplingParams, Speculation, load_engine
from outdraft.engine import assemble, loading
from outdraft.engine.controller import Controller
from outdraft.engine.drafting import AutoDrafting
from outdraft.engine.outputs import Generation
from outdraft.stats.percentiles import percentile
from outdraft.workload.sets import built_in

CELLS = {  # (category, temperature, share)
    "copying": (("code_edit", 0.0, 1.0),),
    "code": (("code", 0.0, 1.0),),
    "chat": (("chat", 0.0, 1.0),),
    "creative": (("creative", 1.0, 1.0),),
    "mix": (("code", 0.0, 0.6), ("creative", 1.0, 0.4)),
}
Encode = Callable[[list[dict[str, str]]], list[int]]

_HEAD, _DRAFT = "smollm2-135m-eagle", "smollm2-135m-draft"
# Arm → its engine, and the draft length that its requests ask for
ARMS = {
    "off": (Speculation(), None),
    "auto": (Speculation("auto"), None),
    "ngram k=5": (Speculation("ngram", k=8), 5),
    "eagle k=2": (Speculation("eagle", k=8, draft=_HEAD, quantization="int8"), 2),
    "eagle k=5": (Speculation("eagle", k=8, draft=_HEAD, quantization="int8"), 5),
    "draft_model k=4": (Speculation("draft_model", k=8, draft=_DRAFT, quantization="int8"), 4),
}


@dataclass(frozen=True, slots=True)
class Request:
    prompt: list[int]
    params: SamplingParams


def block_requests(
    cell: str, count: int, round_: int, tokens: int, encode: Encode
) -> list[Request]:
    """Other ones in each round, the same for all arms."""
    pick = random.Random(f"{cell} {round_}")
    chosen: list[tuple[list[dict[str, str]], float]] = []
    for at, (category, temperature, share) in enumerate(CELLS[cell]):
        own = [each for each in built_in() if each.category == category]
        is_last = at == len(CELLS[cell]) - 1
        wanted = count - len(chosen) if is_last else round(count * share)
        for prompt in pick.sample(own, wanted):  # one that came twice could be copied by lookups
            messages = [{"role": m.role, "content": m.content} for m in prompt.messages]
            chosen.append((messages, temperature))
    pick.shuffle(chosen)
    return [
        Request(
            encode(messages),
            SamplingParams(
                temperature=temperature,
                seed=1000 * round_ + at,
                max_tokens=pick.randint(tokens // 2, tokens + tokens // 2),
                ignore_eos=True,
            ),
        )
        for at, (messages, temperature) in enumerate(chosen)
    ]


class Writer:
    """One arm's part of a block, with a clock that its own steps move."""

    def __init__(
        self, engine: Engine, k: int | None, requests: list[Request], concurrency: int, count: int
    ) -> None:
        """`count`: the first ones of the requests, which count."""
        self._engine, self._k, self._concurrency = engine, k, concurrency
        self._waiting = deque(requests)
        self._ids: list[str] = []  # of those that count
        self._count = self._left = count
        self._started: dict[str, float] = {}  # by the arm's clock
        self._e2e: dict[str, float] = {}
        self._texts: dict[str, list[int]] = {}
        self._tokens, self._all_tokens = 0, sum(each.params.max_tokens for each in requests)
        self._clock = 0.0
        self._planning: list[float] = []  # seconds, of rounds with a plan
        self._drafted = self._accepted = 0
        for _ in range(concurrency):
            self._start()

    @property
    def has_work(self) -> bool:
        return self._left > 0

    @property
    def share(self) -> float:
        """Of its tokens that are written."""
        return self._tokens / self._all_tokens

    def step(self) -> None:
        began = time.perf_counter()
        result = self._engine.step()
        self._clock += time.perf_counter() - began
        if result.stats is not None and "planning" in result.stats.drafting_s:
            self._planning.append(result.stats.drafting_s["planning"])
        for update in result:
            self._tokens += len(update.tokens)
            if update.generation is not None:
                self._finish(update.request_id, update.generation)

    def results(self) -> dict[str, Any]:
        """The block is over."""
        for id in self._started.keys() - self._e2e.keys():
            self._engine.abort(id)
        e2e, texts = [self._e2e[id] for id in self._ids], [self._texts[id] for id in self._ids]
        return {
            "tokens": sum(map(len, texts)),
            "seconds": sum(e2e) / self._concurrency,
            "e2e": e2e,
            "clock": self._clock,
            "planning": [sum(self._planning), len(self._planning)],
            "texts": hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:16],
            "drafted": self._drafted,
            "accepted": self._accepted,
        }

    def _start(self) -> None:
        request, began = self._waiting.popleft(), time.perf_counter()
        id = self._engine.add_request(request.prompt, request.params, k=self._k)
        self._started[id] = self._clock
        self._clock += time.perf_counter() - began
        if len(self._ids) < self._count:
            self._ids.append(id)

    def _finish(self, id: str, generation: Generation) -> None:
        self._e2e[id] = self._clock - self._started[id]
        self._texts[id] = generation.tokens
        self._drafted += generation.acceptance.num_draft_tokens
        self._accepted += generation.acceptance.num_accepted_tokens
        self._left -= id in self._ids
        if self._waiting:
            self._start()


def run_block(
    engines: Mapping[str, Engine], requests: list[Request], concurrency: int, count: int
) -> dict[str, dict[str, Any]]:
    """By arm."""
    writers = {
        arm: Writer(engine, ARMS[arm][1], requests, concurrency, count)
        for arm, engine in engines.items()
    }
    while working := [each for each in writers.values() if each.has_work]:
        min(working, key=lambda each: each.share).step()
    results = {arm: writer.results() for arm, writer in writers.items()}
    for engine in engines.values():
        engine.forget()
    return results


def share_weights() -> None:
    """Engines that are loaded from now on have the same weights."""

    def kept(make: Callable[..., Any], of: Callable[..., object]) -> Callable[..., Any]:
        known: dict[object, Any] = {}

        def found(*args: Any, **kwargs: Any) -> Any:
            key = of(*args, **kwargs)
            if key not in known:
                known[key] = make(*args, **kwargs)
            return known[key]

        return found

    loading.load_decoder = kept(  # type: ignore[attr-defined]
        loading.load_decoder, lambda spec, weights, **kwargs: (spec, kwargs["quantization"])
    )
    assemble.load_head = kept(  # type: ignore[attr-defined]
        assemble.load_head, lambda spec, *args, **kwargs: (spec, kwargs["quantization"])
    )


def start_engines(arms: list[str], quantization: str) -> dict[str, Engine]:
    """By arm, in that order, each warmed up."""
    engines = {
        arm: load_engine("smollm2-135m", ARMS[arm][0], quantization=quantization) for arm in arms
    }
    encode = next(iter(engines.values())).tokenizer.apply_chat
    run_block(engines, block_requests("chat", 2, -1, 16, encode), 1, 2)
    return engines


def measure(args: argparse.Namespace, journal: Path, done: set[tuple[str, int, int]]) -> None:
    """All blocks that the journal lacks, until time is up."""
    began = time.monotonic()
    learned: Controller | None = None
    share_weights()
    for round_ in range(args.rounds):
        blocks = [
            (cell, concurrency, round_)
            for cell in args.cells.split(",")
            for concurrency in map(int, args.concurrency.split(","))
            if (cell, concurrency, round_) not in done
        ]
        if not blocks:
            continue
        arms = args.arms.split(",")
        random.Random(f"{round_}").shuffle(arms)
        engines = start_engines(arms, args.quantization)
        if "auto" in engines:
            drafting = engines["auto"].drafting
            assert isinstance(drafting, AutoDrafting)
            drafting._controller = learned = learned or drafting._controller
        for cell, concurrency, _ in blocks:
            if time.monotonic() - began > args.limit_s:
                print("time is up; start again to go on", flush=True)
                return
            count = 2 * concurrency if concurrency > 4 else 4 * concurrency
            more = concurrency * 3 // 2 if concurrency > 1 else 0
            encode = engines[arms[0]].tokenizer.apply_chat
            requests = block_requests(cell, count + more, round_, args.tokens, encode)
            where = {"cell": cell, "concurrency": concurrency, "round": round_}
            results = run_block(engines, requests, concurrency, count)
            with journal.open("a") as file:  # all arms of a block, or none
                file.writelines(
                    json.dumps({**where, "arm": arm} | each) + "\n" for arm, each in results.items()
                )
        del engines
        gc.collect()  # their KV caches are memory again before the next ones are made


def cells_of(records: list[dict[str, Any]]) -> Iterator[tuple[str, int, dict[str, list[Any]]]]:
    keys = dict.fromkeys((each["cell"], each["concurrency"]) for each in records)
    for cell, concurrency in sorted(keys, key=lambda key: (list(CELLS).index(key[0]), key[1])):
        arms: dict[str, list[Any]] = {}
        for each in records:
            if (each["cell"], each["concurrency"]) == (cell, concurrency):
                arms.setdefault(each["arm"], []).append(each)
        for own in arms.values():
            own.sort(key=lambda each: each["round"])
        yield cell, concurrency, arms


def tail(blocks: list[Any], plain: list[Any]) -> float:
    """P99 of e2e over all rounds, each in means of off's of that round: the machine is not the
    same in all."""
    return percentile(
        [
            seconds / statistics.mean(of_off["e2e"])
            for own, of_off in zip(blocks, plain, strict=True)
            for seconds in own["e2e"]
        ],
        0.99,
    )


def report(records: list[dict[str, Any]]) -> None:
    print(machine_line())
    first = min(each["round"] for each in records)
    parts = {
        "the first round": [each for each in records if each["round"] == first],
        "later rounds": [each for each in records if each["round"] > first],
    }
    for name, part in parts.items():
        if part:
            print(f"\n{name}")
            table(part)


def table(records: list[dict[str, Any]]) -> None:
    print(
        f"{'cell':9} {'at a time':>9} {'n':>3}  {'auto / off':20} {'best fixed':15} "
        f"{'auto / best fixed':20} {'P99 e2e / off':>13}  texts"
    )
    for cell, concurrency, arms in cells_of(records):
        speeds = {
            arm: [each["tokens"] / each["seconds"] for each in own] for arm, own in arms.items()
        }
        fixed = [arm for arm in speeds if arm not in ("off", "auto")]
        best = max(fixed, key=lambda arm: ratio(speeds[arm], speeds["off"])[0])
        tails = {arm: tail(arms[arm], arms["off"]) for arm in ("off", "auto")}
        differing = sum(
            each["texts"] != plain["texts"]
            for arm in arms
            for each, plain in zip(arms[arm], arms["off"], strict=True)
        )
        print(
            f"{cell:9} {concurrency:>9} {len(speeds['off']):>3}  "
            f"{ratio_text(ratio(speeds['auto'], speeds['off'])):20} {best:15} "
            f"{ratio_text(ratio(speeds['auto'], speeds[best])):20} "
            f"{tails['auto'] / tails['off']:>13.2f}  {differing or 'same'}"
        )
        spent, rounds = (sum(each["planning"][at] for each in arms["auto"]) for at in (0, 1))
        whole_s = sum(each["clock"] for each in arms["auto"])
        if rounds:
            print(f"{'':9} a plan, lookups included: {spent / rounds * 1e6:.0f} us, "
                  f"{spent / whole_s:.1%} of the time")  # fmt: skip
        others = (f"{arm} {ratio_text(ratio(speeds[arm], speeds['off']))}" for arm in fixed)
        print(f"{'':9} over off: {', '.join(others)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--journal", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--limit-s", type=float, default=540.0)
    parser.add_argument("--concurrency", default="1,4,16")
    parser.add_argument("--cells", default=",".join(CELLS))
    parser.add_argument("--arms", default=",".join(ARMS), help="a journal is of the same ones")
    parser.add_argument("--quantization", default="none")
    parser.add_argument("--report", action="store_true", help="of what was measured; no more")
    args = parser.parse_args()
    lines = args.journal.read_text().splitlines() if args.journal.exists() else []
    done = {(each["cell"], each["concurrency"], each["round"]) for each in map(json.loads, lines)}
    if not args.report:
        measure(args, args.journal, done)
        lines = args.journal.read_text().splitlines()
    report([json.loads(line) for line in lines])


if __name__ == "__main__":
    main()
