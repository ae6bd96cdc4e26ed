"""How fast the engine decodes: against transformers, by weight format, by method.

Every figure is a ratio of arms that take turns in one process: the default model, greedy, one
stream, prompt time included, the same prompts for both arms of a ratio.

    python benchmarks/decode.py [--rounds 22] [--tokens 64] [--threads 2] [--only off,int8] [--json]

off ÷ transformers     our engine without speculation against transformers' generate, float32
ngram ÷ off            float32, on prompts that ask to copy or edit a text: all of them, and those
                       whose answer really copies (half of its 4-grams are in the prompt)
int8, int4, bf16 ÷ off weights in that format against float32
step of 6 ÷ step of 1  the time of a step of 6 tokens over the time of a step of 1, by format
off ÷ off, a core busy the same with a program beside it that wants a core all the time
"""

from __future__ import annotations

import argparse
import atexit
import json
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from arms import machine, machine_line, ratio, ratio_text, take_turns
from outdraft import SamplingParams, Speculation, load_engine
from outdraft.catalog import resolve
from outdraft.engine.engine import Engine
from outdraft.engine.loading import BLOCK_SIZE
from outdraft.engine.runners.runner import Run

TALK = (
    ("Explain in simple words why the sea is salty.", ""),
    ("Write a short story about a lighthouse keeper who finds a map.", ""),
    ("What should I think about before buying a used bicycle?", ""),
    ("Write a Python function that counts the words of a file.", ""),
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
_RECORD = (
    '{"name": "Mill Lane Library", "opened": 1931, "rooms": [{"name": "reading room", '
    '"seats": 48}, {"name": "children\'s room", "seats": 20}, {"name": "archive", "seats": 6}], '
    '"hours": {"monday": "9-17", "tuesday": "9-17", "friday": "12-20"}}'
)
_ROWS = """def load_rows(path):
    rows = []
    with open(path) as file:
        for line in file:
            line = line.strip()
            if not line:
                continue
            name, price, count = line.split(",")
            rows.append((name, float(price), int(count)))
    return rows


def total_price(rows):
    total = 0
    for name, price, count in rows:
        total += price * count
    return total"""
_LIST = """1. Boots and a warm coat
2. Two litres of water
3. A map of the valley
4. Bread, cheese and four apples
5. A torch and spare batteries
6. Rope, twenty metres
7. A whistle on a string
8. Matches in a dry tin"""
# A question, and how the answer begins: a model this small edits only if its answer is started.
# All prompts ever tried are kept; `copies_prompt` decides which answers copy.
COPY = (
    (f"Repeat the following letter word for word, and nothing else:\n\n{_LETTER}", ""),
    (f"Copy this JSON exactly:\n\n{_RECORD}", ""),
    (f"Copy this program exactly as it is:\n\n```python\n{_ROWS}\n```", "```python\n"),
    (
        "Rename `variance` to `spread` in this program and print the whole program:\n\n"
        f"```python\n{_CODE}\n```",
        "```python\ndef mean(values):\n    total = 0\n",
    ),
    (f"Change the Friday hours to 10-18 and print the whole JSON:\n\n{_RECORD}", '{"name":'),
    (
        "Rename `total_price` to `sum_prices` in this program and print the whole program:\n\n"
        f"```python\n{_ROWS}\n```",
        "```python\ndef load_rows(path):\n",
    ),
    (f"Repeat this list exactly:\n\n{_LIST}", ""),
    (
        "Add a type hint to each parameter of this program and print the whole program:\n\n"
        f"```python\n{_ROWS}\n```",
        "```python\ndef load_rows(path: str):\n    rows = []\n",
    ),
    (f"Copy this program exactly as it is:\n\n```python\n{_CODE}\n```", ""),
    (f"Rewrite this program, renaming `values` to `numbers`:\n\n```python\n{_CODE}\n```", ""),
    (f"Add a docstring to each function of this program:\n\n```python\n{_CODE}\n```", ""),
)


def prompt_ids(engine: Engine, prompts: tuple[tuple[str, str], ...]) -> list[list[int]]:
    return [
        engine.tokenizer.apply_chat([{"role": "user", "content": question}])
        + engine.tokenizer.encode(start)
        for question, start in prompts
    ]


def engine_arm(
    engine: Engine,
    prompts: tuple[tuple[str, str], ...],
    params: SamplingParams,
    k: int | None = None,
) -> Callable[[int], float]:
    """An arm that returns tokens per second, from the prompt to the last token."""
    chats = prompt_ids(engine, prompts)

    def arm(index: int) -> float:
        engine.forget()
        start = time.perf_counter()
        [generation] = engine.generate([chats[index % len(chats)]], params, k=k)
        return len(generation.tokens) / (time.perf_counter() - start)

    return arm


def copies_prompt(prompt: list[int], answer: list[int], size: int = 4) -> bool:
    """Whether half of the answer's 4-grams are in the prompt.

    Applied to the answer without speculation, so that the choice does not depend on speed.
    """
    known = {tuple(prompt[at : at + size]) for at in range(len(prompt) - size + 1)}
    grams = [tuple(answer[at : at + size]) for at in range(len(answer) - size + 1)]
    return bool(grams) and 2 * sum(gram in known for gram in grams) >= len(grams)


def copying_rounds(engine: Engine, params: SamplingParams, rounds: int) -> list[int]:
    """The rounds whose prompt the model really copies from."""
    chats = prompt_ids(engine, COPY)
    answers = engine.generate(chats, params, k=0)
    copies = [copies_prompt(chat, each.tokens) for chat, each in zip(chats, answers, strict=True)]
    return [index for index in range(rounds) if copies[index % len(copies)]]


def transformers_arm(engine: Engine, tokens: int) -> Callable[[int], float]:
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    path = resolve("smollm2-135m").path
    model = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32
    )
    chats = prompt_ids(engine, TALK)

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
    table = list(range(1, 2 + (context + rows) // BLOCK_SIZE))

    def arm(index: int) -> float:
        times = []
        for _ in range(10):
            start = time.perf_counter()
            runner.run([Run([11] * rows, context, table, num_logits=rows)])
            times.append(time.perf_counter() - start)
        return statistics.median(times)

    return arm


def beside_busy(arm: Callable[[int], float]) -> Callable[[int], float]:
    """The same arm while another process computes without a pause."""
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    busy.send_signal(signal.SIGSTOP)
    atexit.register(busy.kill)

    def beside(index: int) -> float:
        busy.send_signal(signal.SIGCONT)
        try:
            return arm(index)
        finally:
            busy.send_signal(signal.SIGSTOP)

    return beside


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=22)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", default="", help="comma list of arms besides off")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    only = set(args.only.split(",")) if args.only else None

    # A step of 6 tokens costs no more than one of 1 here, so any guess is worth trying.
    ngram = Speculation(method="ngram", k=5, prompt_lookup_min=1)
    engine = load_engine(speculation=ngram)
    fixed = SamplingParams(max_tokens=args.tokens, ignore_eos=True)
    whole = SamplingParams(max_tokens=2 * args.tokens)  # a copy ends by itself
    arms: dict[str, Callable[[int], float]] = {"off": engine_arm(engine, TALK, fixed, k=0)}
    arms["off, a core busy"] = beside_busy(arms["off"])
    arms["off on copies"] = engine_arm(engine, COPY, whole, k=0)
    arms["ngram on copies"] = engine_arm(engine, COPY, whole)
    for rows in (1, 2, 4, 6, 8):
        arms[f"step of {rows}"] = step_arm(engine, rows)
    if only is None or "transformers" in only:
        arms["transformers"] = transformers_arm(engine, args.tokens)
    for quantization in ("int8", "int4"):
        if only is None or quantization in only:
            other = load_engine(quantization=quantization)
            arms[quantization] = engine_arm(other, TALK, fixed)
            for rows in (1, 6):
                arms[f"step of {rows} {quantization}"] = step_arm(other, rows)
    if only is None or "bf16" in only:
        arms["bf16"] = engine_arm(load_engine(dtype="bfloat16"), TALK, fixed)

    take_turns(arms, 1)  # warm-up
    results = take_turns(arms, args.rounds)
    rounds = copying_rounds(engine, whole, args.rounds)
    for name in ("ngram", "off"):
        every = results[f"{name} on copies"]
        results[f"{name} where it copied"] = [every[index] for index in rounds]
    pairs = [
        ("off", "transformers"),
        ("off", "off, a core busy"),
        ("ngram on copies", "off on copies"),
    ]
    pairs.append(("ngram where it copied", "off where it copied"))
    pairs += [(name, "off") for name in ("int8", "int4", "bf16")]
    pairs += [(f"step of {rows}", "step of 1") for rows in (2, 4, 6, 8)]
    pairs += [(f"step of 6 {name}", f"step of 1 {name}") for name in ("int8", "int4")]
    report: dict[str, Any] = {
        "machine": machine(),
        "rounds": args.rounds,
        "tokens": args.tokens,
        "medians": {name: statistics.median(values) for name, values in results.items()},
        "ratios": {
            f"{over} / {under}": ratio(results[over], results[under])
            for over, under in pairs
            if over in results and under in results
        },
    }
    if args.json:
        print(json.dumps(report))
        return
    print(machine_line())
    for name, value in report["medians"].items():
        shown = f"{value * 1e3:8.2f} ms" if name.startswith("step") else f"{value:8.1f} tokens/s"
        print(f"  {name:18} {shown}")
    for name, values in report["ratios"].items():
        count = len(results[name.split(" / ")[0]])
        print(f"  {name:44} {ratio_text(values)}  n={count}")


if __name__ == "__main__":
    main()
