"""Does speculation change the text? Counts divergences on a real model.

    python benchmarks/exactness.py                              # 270 prompts × 128 tokens
    python benchmarks/exactness.py --prompts 8 --tokens 32      # a quick look
    python benchmarks/exactness.py --quantization int8 --head smollm2-135m-eagle
    python benchmarks/exactness.py --prompts 60 --out new.jsonl # then: cmp old.jsonl new.jsonl

Every prompt is written once without speculation (`off`, sixteen at a time) and once with each
method, in batches of 1 to 16 and with k from 1 to 8. A third of the prompts are greedy, a third
sampled at 0.7, a third at 1.0; every second one also has penalties, a bias, min-p, top-p or stop
strings. A divergence is a text whose tokens differ from those of `off`; its position is the first
that differs. With the `coupled` rule on a CPU there are none, and this is the evidence.

The draft is the target itself in 4 bits: it agrees often, not always. `--head DIR` adds `eagle`
with a head for the target, and `auto` with that head. `--out FILE` writes every text as a line of
JSON. Two versions of outdraft should write the same file on the same machine.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from outdraft import SamplingParams, Speculation, load_engine
from outdraft.engine.engine import Engine

PROMPTS = 270  # of which 200 and more run to their full length
METHODS = ("ngram", "suffix", "draft_model")
BATCHES = (16, 8, 1, 13, 5, 16, 2, 9, 3, 16)  # sequences at once
Say = Callable[[str], None]

TOPICS = (
    "a lighthouse", "sourdough bread", "binary search", "the water cycle", "a chess clock",
    "honey bees", "a bicycle gearbox", "paper maps", "the moon's phases", "rust on iron",
    "a public library", "wool and felt", "train timetables", "glass blowing", "a small garden",
    "tides and harbours", "spam filters", "old clocks", "a mountain hut", "fermented tea",
    "traffic lights", "pottery kilns", "a weather station", "migrating birds", "email headers",
    "wind turbines", "a violin", "salt mines", "city trams", "a compost heap",
)  # fmt: skip
TASKS = (
    "Explain {topic} to a curious child in a short paragraph.",
    "List ten facts about {topic}, numbered, one per line.",
    "Write a Python class that models {topic}, with two methods and a docstring for each.",
    "Tell a short story in which {topic} plays the main part.",
    'Describe {topic} as JSON with the keys "name", "parts", "uses" and "risks".',
    "Copy the following text word for word, then copy it once more.\n\n"
    "Notes on {topic}: it was looked at twice, first in the morning and again at dusk; "
    "both times the notes on {topic} were the same, and both times they were filed.",
    "Question: what should a beginner know about {topic}?\nAnswer:",
)


@dataclass
class Arm:
    """One method over all prompts, compared with the texts without speculation."""

    method: str
    prompts: int = 0
    tokens: int = 0
    proposed: int = 0
    accepted: int = 0
    seconds: float = 0.0
    divergences: int = 0
    first_divergences: list[tuple[int, int]] = field(default_factory=list)  # (prompt, position)
    texts: list[dict[str, object]] = field(default_factory=list)  # lines of --out


def make_prompts(count: int, engine: Engine) -> list[list[int]]:
    """Topics × tasks; every topic is combined with every task before a pair is repeated."""
    made = []
    for index in range(count):
        topic = TOPICS[(index + index // len(TOPICS)) % len(TOPICS)]
        text = TASKS[index % len(TASKS)].format(topic=topic)
        made.append(engine.tokenizer.apply_chat([{"role": "user", "content": text}]))
    return made


def make_params(count: int, max_tokens: int) -> list[SamplingParams]:
    extras: tuple[dict[str, object], ...] = (
        {"repetition_penalty": 1.1, "min_p": 0.05},
        {"presence_penalty": 0.4, "frequency_penalty": 0.2, "stop": ("\n\n\n", "5.", "The end")},
        {"logit_bias": {30: 2.0, 198: -1.5, 28: 1.0}, "top_p": 0.9},
        {"min_p": 0.02, "top_p": 0.95, "top_k": 50, "stop": (". The", '"uses"'), "min_tokens": 20},
    )
    made = []
    for index in range(count):
        settings: dict[str, object] = {"temperature": (0.0, 0.7, 1.0)[index % 3], "seed": index}
        if index // 3 % 2:
            settings |= extras[index // 6 % len(extras)]
        # Texts run to their full length, except where stop strings may end them.
        settings["ignore_eos"] = "stop" not in settings
        made.append(SamplingParams(max_tokens=max_tokens, **settings))  # type: ignore[arg-type]
    return made


def batches(count: int, sizes: tuple[int, ...]) -> Iterator[range]:
    start = turn = 0
    while start < count:
        end = min(count, start + sizes[turn % len(sizes)])
        yield range(start, end)
        start, turn = end, turn + 1


def write_all(
    engine: Engine, max_tokens: int, count: int, sizes: tuple[int, ...], ks: range, say: Say
) -> list[list[int]]:
    """Every prompt's generated tokens."""
    prompts, params = make_prompts(count, engine), make_params(count, max_tokens)
    texts: list[list[int]] = []
    for turn, part in enumerate(batches(count, sizes)):
        k = ks[turn % len(ks)]
        generations = engine.generate([prompts[i] for i in part], [params[i] for i in part], k=k)
        texts += [generation.tokens for generation in generations]
        say(f"{engine.speculation.method}: {len(texts)} of {count} prompts")
    engine.pool.check([])
    return texts


def first_divergence(mine: list[int], theirs: list[int]) -> int | None:
    if mine == theirs:
        return None
    pairs = zip(mine, theirs, strict=False)
    shorter = min(len(mine), len(theirs))
    return next((at for at, (a, b) in enumerate(pairs) if a != b), shorter)


def _speculation(method: str, target: str, head: str | None) -> Speculation:
    if method == "eagle":
        return Speculation(method=method, draft=head, k=8)
    if method == "auto":
        return Speculation(method=method, draft=head)
    if method == "draft_model":
        return Speculation(method=method, draft=target, quantization="int4", k=8)
    return Speculation(method=method, k=8)


def measure(
    count: int,
    max_tokens: int,
    *,
    target: str = "smollm2-135m",
    head: str | None = None,
    dtype: str = "float32",
    quantization: str = "none",
    say: Say = lambda line: None,
) -> list[Arm]:
    """`off` first, then every method against it."""
    arms: list[Arm] = []
    expected: list[list[int]] = []
    for method in ("off", *METHODS, *(["eagle", "auto"] if head else [])):
        speculation = _speculation(method, target, head)
        engine = load_engine(target, speculation, dtype=dtype, quantization=quantization)
        started = time.perf_counter()
        # Other batch sizes for `off` than for the rest: they must not change a text either.
        sizes, ks = ((16,), range(1)) if speculation.is_off else (BATCHES, range(1, 9))
        texts = write_all(engine, max_tokens, count, sizes, ks, say)
        expected = expected or texts
        arm = Arm(method, count, sum(map(len, texts)), seconds=time.perf_counter() - started)
        arm.texts = [
            {"method": method, "prompt": index, "text": engine.tokenizer.decode(one), "tokens": one}
            for index, one in enumerate(texts)
        ]
        arm.proposed = engine.acceptance.num_draft_tokens
        arm.accepted = engine.acceptance.num_accepted_tokens
        for index, (mine, theirs) in enumerate(zip(texts, expected, strict=True)):
            at = first_divergence(mine, theirs)
            if at is not None:
                arm.first_divergences.append((index, at))
        arm.divergences = len(arm.first_divergences)
        arms.append(arm)
    return arms


def table(arms: list[Arm]) -> str:
    lines = [
        f"{'method':<12}{'prompts':>8}{'tokens':>8}{'proposed':>10}{'accepted':>10}{'rate':>6}"
        f"{'tokens/s':>10}{'divergences':>13}  first at (prompt, position)"
    ]
    for arm in arms:
        rate = f"{arm.accepted / arm.proposed:.2f}" if arm.proposed else "-"
        shown = ", ".join(map(str, arm.first_divergences[:8])) or "-"
        lines.append(
            f"{arm.method:<12}{arm.prompts:>8}{arm.tokens:>8}{arm.proposed:>10}{arm.accepted:>10}"
            f"{rate:>6}{arm.tokens / arm.seconds:>10.1f}{arm.divergences:>13}  {shown}"
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--prompts", type=int, default=PROMPTS, metavar="N")
    parser.add_argument("--tokens", type=int, default=128, metavar="N", help="per prompt")
    parser.add_argument("--target", default="smollm2-135m")
    parser.add_argument("--head", metavar="DIR", help="a head for the target: adds eagle, auto")
    parser.add_argument("--dtype", default="float32", help="float32 or bfloat16")
    parser.add_argument("--quantization", default="none", help="of the target: none, int8, int4")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write every text, as JSON lines")
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    options = parser.parse_args()
    arms = measure(
        options.prompts,
        options.tokens,
        target=options.target,
        head=options.head,
        dtype=options.dtype,
        quantization=options.quantization,
        say=lambda line: print(line, file=sys.stderr, flush=True),
    )
    if options.out:
        lines = [json.dumps(text) for arm in arms for text in arm.texts]
        options.out.write_text("\n".join(lines) + "\n")
    if options.json:
        report = [asdict(arm) for arm in arms]
        print(json.dumps([{k: v for k, v in arm.items() if k != "texts"} for arm in report]))
    else:
        print(table(arms))
    return 1 if any(arm.divergences for arm in arms) else 0


if __name__ == "__main__":
    sys.exit(main())
