"""How fast is decoding, alone in the engine: against transformers, by format, by method.

Every figure is a ratio of arms that took turns in this one process, on the default model,
greedy, one stream. Each arm writes the same number of tokens for the same prompt, prompt
time included.

    python benchmarks/decode.py [--rounds 8] [--tokens 64] [--threads 2] [--only off,int8] [--json]

off ÷ transformers     our engine without speculation against transformers' generate, float32
ngram ÷ off            on prompts whose answer copies or edits their own text, float32
int8, int4, bf16 ÷ off the target's weights in that format against float32
verify 4 ÷ 1           the time of a step of 4 tokens over the time of a step of 1, float32
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from arms import machine, ratio, take_turns
from outdraft import SamplingParams, Speculation, load_engine
from outdraft.catalog import resolve
from outdraft.engine.engine import Engine
from outdraft.engine.runner import Run

TALK = (
    "Explain in simple words why the sea is salty.",
    "Write a short story about a lighthouse keeper who finds a map.",
    "What should I think about before buying a used bicycle?",
    "Write a Python function that counts the words of a file.",
)
_LETTER = (
    "Dear neighbours, on Saturday the 14th of June the water will be turned off between nine "
    "and eleven in the morning, because the old pipe under the courtyard is being replaced. "
    "Please fill a jug the evening before and leave the gate to the courtyard open."
)
_CODE = """def mean(values):
    total = 0
    count = 0
    for value in values:
        total = total + value
        count = count + 1
    return total / count

def variance(values):
    center = mean(values)
    total = 0
    count = 0
    for value in values:
        total = total + (value - center) * (value - center)
        count = count + 1
    return total / count"""
COPY = (
    f"Repeat the following letter word for word, and nothing else:\n\n{_LETTER}",
    f"Copy this program exactly as it is:\n\n```python\n{_CODE}\n```",
    f"Rewrite this program, renaming `values` to `numbers`:\n\n```python\n{_CODE}\n```",
    f"Add a docstring to each function of this program:\n\n```python\n{_CODE}\n```",
)


def engine_arm(
    engine: Engine, prompts: tuple[str, ...], tokens: int, k: int | None = None
) -> Callable[[int], float]:
    """An arm that returns tokens per second."""
    chats = [engine.tokenizer.apply_chat([{"role": "user", "content": p}]) for p in prompts]
    params = SamplingParams(max_tokens=tokens, ignore_eos=True)

    def arm(index: int) -> float:
        engine.forget()
        start = time.perf_counter()
        engine.generate([chats[index % len(chats)]], params, k=k)
        return tokens / (time.perf_counter() - start)

    return arm


def transformers_arm(engine: Engine, tokens: int) -> Callable[[int], float]:
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.set_verbosity_error()
    path = resolve("smollm2-135m").path
    model = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32
    )
    chats = [engine.tokenizer.apply_chat([{"role": "user", "content": p}]) for p in TALK]

    def arm(index: int) -> float:
        ids = torch.tensor([chats[index % len(chats)]])
        start = time.perf_counter()
        model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=tokens,
            min_new_tokens=tokens,
            do_sample=False,
            pad_token_id=0,
        )
        return tokens / (time.perf_counter() - start)

    return arm


def step_arm(engine: Engine, rows: int, context: int = 128) -> Callable[[int], float]:
    """An arm that returns the seconds of one step over `rows` tokens, median of 10."""
    runner = engine._runner
    table = list(range(1, 2 + (context + rows) // 64))

    def arm(index: int) -> float:
        times = []
        for _ in range(10):
            start = time.perf_counter()
            runner.run([Run([11] * rows, context, table, num_logits=rows)])
            times.append(time.perf_counter() - start)
        return statistics.median(times)

    return arm


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", default="", help="comma list of arms besides off")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    only = set(args.only.split(",")) if args.only else None

    engine = load_engine(speculation=Speculation(method="ngram", k=6))
    arms: dict[str, Callable[[int], float]] = {"off": engine_arm(engine, TALK, args.tokens, k=0)}
    arms["off on copies"] = engine_arm(engine, COPY, args.tokens, k=0)
    arms["ngram on copies"] = engine_arm(engine, COPY, args.tokens)
    for rows in (1, 2, 4, 6, 8):
        arms[f"step of {rows}"] = step_arm(engine, rows)
    if only is None or "transformers" in only:
        arms["transformers"] = transformers_arm(engine, args.tokens)
    for quantization in ("int8", "int4"):
        if only is None or quantization in only:
            other = load_engine(quantization=quantization)
            arms[quantization] = engine_arm(other, TALK, args.tokens)
    if only is None or "bf16" in only:
        arms["bf16"] = engine_arm(load_engine(dtype="bfloat16"), TALK, args.tokens)

    take_turns(arms, 1)  # warm-up
    found = take_turns(arms, args.rounds)
    pairs = [("off", "transformers"), ("ngram on copies", "off on copies")]
    pairs += [(name, "off") for name in ("int8", "int4", "bf16")]
    pairs += [(f"step of {rows}", "step of 1") for rows in (2, 4, 6, 8)]
    report: dict[str, Any] = {
        "machine": machine(),
        "rounds": args.rounds,
        "tokens": args.tokens,
        "medians": {name: statistics.median(values) for name, values in found.items()},
        "ratios": {
            f"{over} / {under}": ratio(found[over], found[under])
            for over, under in pairs
            if over in found and under in found
        },
    }
    if args.json:
        print(json.dumps(report))
        return
    print(" · ".join(f"{key} {value}" for key, value in report["machine"].items()))
    for name, value in report["medians"].items():
        shown = f"{value * 1e3:8.2f} ms" if name.startswith("step") else f"{value:8.1f} tokens/s"
        print(f"  {name:18} {shown}")
    for name, (middle, low, high) in report["ratios"].items():
        print(f"  {name:34} {middle:.2f} [{low:.2f}, {high:.2f}]  n={args.rounds}")


if __name__ == "__main__":
    main()
