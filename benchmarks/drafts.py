"""What the shipped drafts give: tokens per second over off, one stream, the same text.

    python benchmarks/drafts.py [--prompts 12] [--tokens 96] [--temperature 0] [--k 2,3,4,5,6]

Held-out prompts of chat, code and summarization. All arms take turns in one process, prompt time
included; every text is compared with off's.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from arms import machine, ratio, take_turns
from outdraft import Engine, SamplingParams, Speculation, load_engine
from outdraft.distill.split import held_out
from outdraft.workload.prompt import Prompt
from outdraft.workload.sets import built_in

_CATEGORIES = ("chat", "code", "summarization")
_DRAFTS = {
    "draft_model": ("smollm2-135m-draft", ("none", "int8")),
    "eagle": ("smollm2-135m-eagle", ("none", "int8")),
}


def chosen(count: int) -> list[Prompt]:
    by_category = [[p for p in held_out(built_in()) if p.category == c] for c in _CATEGORIES]
    return [group[at] for at in range(len(by_category[0])) for group in by_category][:count]


def arm(
    engine: Engine, k: int, prompts: list[list[int]], params: SamplingParams, texts: dict[int, str],
    lengths: dict[str, list[float]], name: str,
) -> Callable[[int], float]:  # fmt: skip
    def run(index: int) -> float:
        start = time.perf_counter()
        engine.add_request(prompts[index], params, k=k)
        done = None
        while engine.has_work:
            for update in engine.step():
                done = update.generation or done
        seconds = time.perf_counter() - start
        assert done is not None
        if texts.setdefault(index, done.text) != done.text:
            raise SystemExit(f"{name}: another text at prompt {index}")
        if done.acceptance.length is not None:
            lengths.setdefault(name, []).append(done.acceptance.length)
        engine.forget()
        return len(done.tokens) / seconds

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=12)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--k", default="2,3,4,5,6")
    args = parser.parse_args()
    ks = [int(each) for each in args.k.split(",")]
    off = load_engine("smollm2-135m")
    prompts = [
        off.tokenizer.apply_chat([{"role": m.role, "content": m.content} for m in p.messages])
        for p in chosen(args.prompts)
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
    found = take_turns(arms, len(prompts))
    print(" · ".join(f"{key} {value}" for key, value in machine().items()))
    print(
        f"temperature {args.temperature:g}, {args.tokens} tokens, {len(prompts)} prompts, same text"
    )
    print(f"off: {sum(found['off']) / len(found['off']):.1f} tokens/s")
    for name in arms:
        if name != "off":
            middle, low, high = ratio(found[name], found["off"])
            own = lengths.get(name, [])
            mean = sum(own) / len(own) if own else 0.0
            print(f"{name:26} {middle:.2f} [{low:.2f}, {high:.2f}]  acceptance length {mean:.2f}")


if __name__ == "__main__":
    main()
