"""The tables of the shipped drafts' cards: acceptance on the built-in prompts.

    python benchmarks/cards.py [--device cuda] [--prompts 456] [--tokens 128]

No draft was trained on one of these prompts. Counted by our own engine, as `distill` does for every
draft; what is printed is the first table of the card.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from arms import machine_line
from outdraft.distill.card import acceptance_tables
from outdraft.distill.evaluation import measure_acceptance
from outdraft.distill.settings import DistillSettings, HeadSize, ModelSize
from outdraft.workload.plan import choose_balanced
from outdraft.workload.sets import built_in

_KINDS = {
    "smollm2-135m-draft": ("model", ModelSize()),
    "smollm2-135m-eagle": ("head", HeadSize()),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--prompts", type=int, default=456)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--draft", choices=sorted(_KINDS), action="append")
    args = parser.parse_args()
    print(machine_line())
    prompts = choose_balanced(list(built_in()), args.prompts, seed=0)
    here = Path()
    for name in args.draft or _KINDS:
        kind, size = _KINDS[name]
        settings = DistillSettings(
            "smollm2-135m", kind, here, here, here, size, device=args.device, threads=args.threads,
            evaluate_tokens=args.tokens,
        )  # fmt: skip
        measured = measure_acceptance(settings, Path(name), prompts, lambda *_: None)
        k = settings.train_settings.k
        print(f"\n{name}, {len(prompts)} prompts, {args.tokens} tokens each")
        print(acceptance_tables({"k": k, "measured": measured}))


if __name__ == "__main__":
    main()
