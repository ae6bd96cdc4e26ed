"""Method auto against off and fixed settings: throughput, P99 of e2e, and the same text.

    python benchmarks/auto.py --journal FILE [--rounds 6] [--tokens 48] [--limit-s 540]
                              [--concurrency 1,4,16] [--cells copying,code,chat,creative,mix]
    python benchmarks/auto.py --journal FILE --report

SmolLM2-135M with the shipped drafts in int8, built-in prompts that no draft was trained on. A block
is as many requests as run at a time (two where one does), all there from the start; every request
writes so many tokens. In each round all arms run one block of the same prompts, in a new order, in
one process, and forget it afterwards. What was measured is in the journal, so that a run that was
stopped, or reached --limit-s, goes on where it was.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import time
from collections.abc import Iterator
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


def block_prompts(cell: str, count: int, seed: int) -> list[tuple[list[dict[str, str]], float]]:
    """(messages, temperature) of a block: other ones in each round, the same for all arms."""
    pick = random.Random(f"{cell} {seed}")
    chosen: list[tuple[list[dict[str, str]], float]] = []
    for at, (category, temperature, share) in enumerate(CELLS[cell]):
        own = [each for each in built_in() if each.category == category]
        is_last = at == len(CELLS[cell]) - 1
        wanted = count - len(chosen) if is_last else round(count * share)
        for prompt in pick.choices(own, k=wanted):
            messages = [{"role": m.role, "content": m.content} for m in prompt.messages]
            chosen.append((messages, temperature))
    pick.shuffle(chosen)
    return chosen


def run_block(
    engine: Engine, k: int | None, prompts: list[tuple[list[int], float]], tokens: int, seed: int
) -> dict[str, Any]:
    began = time.perf_counter()
    ids = [
        engine.add_request(
            prompt,
            SamplingParams(
                temperature=temperature, seed=seed + at, max_tokens=tokens, ignore_eos=True
            ),
            k=k,
        )
        for at, (prompt, temperature) in enumerate(prompts)
    ]
    done = {}
    while engine.has_work:
        for update in engine.step():
            if update.generation is not None:
                done[update.request_id] = update.generation
    seconds = time.perf_counter() - began
    engine.forget()
    texts = json.dumps([done[each].tokens for each in ids])
    counts = [done[each].acceptance for each in ids]
    return {
        "seconds": seconds,
        "tokens": sum(len(each.tokens) for each in done.values()),
        "e2e": [(each.finished_ns - each.added_ns) / 1e9 for each in done.values()],
        "texts": hashlib.sha256(texts.encode()).hexdigest()[:16],
        "drafted": sum(each.num_draft_tokens for each in counts),
        "accepted": sum(each.num_accepted_tokens for each in counts),
    }


def measure(args: argparse.Namespace, journal: Path, done: set[tuple[str, int, int, str]]) -> None:
    """All blocks that the journal lacks, until time is up."""
    began = time.monotonic()
    engines: dict[Speculation, Engine] = {}
    for speculation, _ in ARMS.values():
        if speculation not in engines:
            engines[speculation] = load_engine(
                "smollm2-135m", speculation, quantization=args.quantization
            )
    encode = engines[Speculation()].tokenizer.apply_chat
    warm = [(encode([{"role": "user", "content": "Hello"}]), 0.0)]
    for speculation, k in ARMS.values():
        run_block(engines[speculation], k, warm, 16, 0)
    print(f"engines are up after {time.monotonic() - began:.0f} s", flush=True)
    for round_ in range(args.rounds):
        for cell in args.cells.split(","):
            for concurrency in map(int, args.concurrency.split(",")):
                count = max(concurrency, 2)
                prompts = [
                    (encode(messages), temperature)
                    for messages, temperature in block_prompts(cell, count, round_)
                ]
                order = list(ARMS)
                random.Random(f"{cell} {concurrency} {round_}").shuffle(order)
                if all((cell, concurrency, round_, arm) in done for arm in order):
                    continue
                if time.monotonic() - began > args.limit_s:
                    print("time is up; start again to go on", flush=True)
                    return
                results = []
                for arm in order:
                    speculation, k = ARMS[arm]
                    waves = [prompts[at : at + concurrency] for at in range(0, count, concurrency)]
                    own = [
                        run_block(engines[speculation], k, wave, args.tokens, 1000 * round_)
                        for wave in waves
                    ]
                    results.append({
                        "cell": cell, "concurrency": concurrency, "round": round_, "arm": arm,
                        "seconds": sum(each["seconds"] for each in own),
                        "tokens": sum(each["tokens"] for each in own),
                        "e2e": [second for each in own for second in each["e2e"]],
                        "texts": [each["texts"] for each in own],
                        "drafted": sum(each["drafted"] for each in own),
                        "accepted": sum(each["accepted"] for each in own),
                    })  # fmt: skip
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
