"""Method auto against off and fixed settings: throughput, P99 of e2e, and the same text.

    python benchmarks/auto.py --journal FILE [--rounds 6] [--tokens 48] [--limit-s 540]
                              [--concurrency 1,4,16] [--cells copying,code,chat,creative,mix]
                              [--arms off,auto,…]
    python benchmarks/auto.py --journal FILE --report

SmolLM2-135M with the shipped drafts in int8, built-in prompts that no draft was trained on. A block
has three or four times as many requests as run at a time: when one ends the next one starts, and
tokens per second are counted until there is none to start. (With one wave of requests the slowest
text sets the time, and nobody gains when others end early.) Texts have half to one and a half times
--tokens, the same for all arms. In each round all arms run one block of the same prompts, in a new
order, in one process, and forget it afterwards. What was measured is in the journal, so that a run
that was stopped, or reached --limit-s, goes on where it was.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arms import machine_line, ratio, ratio_text
from outdraft import Engine, SamplingParams, Speculation, load_engine
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


def run_block(
    engine: Engine, k: int | None, requests: list[Request], concurrency: int
) -> dict[str, Any]:
    waiting = deque(requests)
    ids: list[str] = []

    def start() -> None:
        request = waiting.popleft()
        ids.append(engine.add_request(request.prompt, request.params, k=k))

    began = time.perf_counter()
    for _ in range(concurrency):
        start()
    done, tokens = {}, 0
    full: tuple[int, float] | None = None  # tokens and seconds until a place stays empty
    while engine.has_work:
        for update in engine.step():
            tokens += len(update.tokens)
            if update.generation is not None:
                done[update.request_id] = update.generation
                if waiting:
                    start()
                elif full is None:
                    full = tokens, time.perf_counter() - began
    whole_s = time.perf_counter() - began
    engine.forget()
    assert full is not None
    generations = [done[each] for each in ids]
    texts = json.dumps([each.tokens for each in generations])
    return {
        "tokens": full[0],
        "seconds": full[1],
        "whole": [tokens, whole_s],  # with the time in which places stay empty
        "e2e": [(each.finished_ns - each.added_ns) / 1e9 for each in generations],
        "texts": hashlib.sha256(texts.encode()).hexdigest()[:16],
        "drafted": sum(each.acceptance.num_draft_tokens for each in generations),
        "accepted": sum(each.acceptance.num_accepted_tokens for each in generations),
    }


def measure(args: argparse.Namespace, journal: Path, done: set[tuple[str, int, int, str]]) -> None:
    """All blocks that the journal lacks, until time is up."""
    began = time.monotonic()
    engines: dict[Speculation, Engine] = {}
    arms = {arm: ARMS[arm] for arm in args.arms.split(",")}
    for speculation in (Speculation(), *(each for each, _ in arms.values())):
        if speculation not in engines:
            engines[speculation] = load_engine(
                "smollm2-135m", speculation, quantization=args.quantization
            )
    encode = engines[Speculation()].tokenizer.apply_chat
    warm = block_requests("chat", 2, -1, 16, encode)
    for speculation, k in arms.values():
        run_block(engines[speculation], k, warm, 1)
    print(f"engines are up after {time.monotonic() - began:.0f} s", flush=True)
    for round_ in range(args.rounds):
        for cell in args.cells.split(","):
            for concurrency in map(int, args.concurrency.split(",")):
                count = 3 * concurrency if concurrency > 4 else 4 * concurrency
                requests = block_requests(cell, count, round_, args.tokens, encode)
                order = list(arms)
                random.Random(f"{cell} {concurrency} {round_}").shuffle(order)
                if all((cell, concurrency, round_, arm) in done for arm in order):
                    continue
                if time.monotonic() - began > args.limit_s:
                    print("time is up; start again to go on", flush=True)
                    return
                results = []
                for arm in order:
                    speculation, k = arms[arm]
                    where = {"cell": cell, "concurrency": concurrency, "round": round_, "arm": arm}
                    block = run_block(engines[speculation], k, requests, concurrency)
                    results.append({**where, **block})
                with journal.open("a") as file:  # all arms of a round, or none
                    file.writelines(json.dumps(each) + "\n" for each in results)


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


def report(records: list[dict[str, Any]]) -> None:
    print(machine_line())
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
        tails = {
            arm: percentile([second for each in arms[arm] for second in each["e2e"]], 0.99)
            for arm in ("off", "auto")
        }
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
    done = {
        (each["cell"], each["concurrency"], each["round"], each["arm"])
        for each in map(json.loads, lines)
    }
    if not args.report:
        measure(args, args.journal, done)
        lines = args.journal.read_text().splitlines()
    report([json.loads(line) for line in lines])


if __name__ == "__main__":
    main()
