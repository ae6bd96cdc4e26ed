"""Speed of the shipped drafts: tokens per second compared with off, one stream, the same text.

    python benchmarks/drafts.py [--prompts 32] [--tokens 64] [--temperature 0] [--k 5]

Built-in prompts, one of each category in turn; no draft was trained on one of them. All arms take
turns in one process; prompt time is included. Every text is compared with the one of off. The last
two columns are the same over two disjoint halves of the prompts.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from arms import machine_line, ratio, ratio_text, take_turns
from outdraft import Engine, SamplingParams, Speculation, load_engine
from outdraft.workload.plan import choose_balanced
from outdraft.workload.sets import built_in

_DRAFTS = {
    "draft_model": ("smollm2-135m-draft", ("none", "int8")),
    "eagle": ("smollm2-135m-eagle", ("none", "int8")),
}


def arm(
    engine: Engine, k: int, prompts: list[list[int]], params: SamplingParams, texts: dict[int, str],
    lengths: dict[str, list[float]], name: str,
) -> Callable[[int], float]:  # fmt: skip
    def run(index: int) -> float:
        start = time.perf_counter()
        [done] = engine.generate([prompts[index]], params, k=k)
        seconds = time.perf_counter() - start
        if texts.setdefault(index, done.text) != done.text:
            raise SystemExit(f"{name}: a different text at prompt {index}")
        if done.acceptance.length is not None:
            lengths.setdefault(name, []).append(done.acceptance.length)
        engine.forget()
        return len(done.tokens) / seconds

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--k", default="5")
    parser.add_argument("--seed", type=int, default=0, help="of the choice of prompts")
    args = parser.parse_args()
    ks = [int(each) for each in args.k.split(",")]
    off = load_engine("smollm2-135m")
    prompts = [
        off.tokenizer.apply_chat([{"role": m.role, "content": m.content} for m in p.messages])
        for p in choose_balanced(built_in(), args.prompts, args.seed)
    ]
    params = SamplingParams(
        temperature=args.temperature, seed=1, max_tokens=args.tokens, ignore_eos=True
    )
    texts: dict[int, str] = {}
    lengths: dict[str, list[float]] = {}
    arms = {"off": arm(off, 0, prompts, params, texts, lengths, "off")}
    for method, (draft, quantizations) in _DRAFTS.items():
        for quantization in quantizations:
            spec = Speculation(method, k=max(ks), draft=draft, quantization=quantization)
            engine = load_engine("smollm2-135m", spec)
            for k in ks:
                name = f"{method} {quantization} k={k}"
                arms[name] = arm(engine, k, prompts, params, texts, lengths, name)
    for run in arms.values():
        run(0)  # warm up
    results = take_turns(arms, len(prompts))
    print(machine_line())
    print(
        f"temperature {args.temperature:g}, {args.tokens} tokens, {len(prompts)} prompts, same text"
    )
    print(f"off: {sum(results['off']) / len(results['off']):.1f} tokens/s")
    for name in arms:
        if name != "off":
            own = lengths.get(name, [])
            mean = sum(own) / len(own) if own else 0.0
            both = list(zip(results[name], results["off"], strict=True))
            halves = (both, both[: len(both) // 2], both[len(both) // 2 :])
            parts = [ratio_text(ratio(*zip(*part, strict=True))) for part in halves]
            print(f"{name:26} {parts[0]}  acceptance length {mean:.2f}  {parts[1]}  {parts[2]}")


if __name__ == "__main__":
    main()
