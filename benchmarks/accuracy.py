"""Errors of our float32 logits, and of transformers', against the same model in float64.

    python benchmarks/accuracy.py [--tokens 150] [--json]

The default model, over plain text and over random tokens, whose logits vary more. Prints the
largest and the root-mean-square differences.
"""

from __future__ import annotations

import argparse
import json
import random

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM
from transformers.utils import logging

from outdraft import load_engine
from outdraft.catalog import resolve
from outdraft.engine.loading import BLOCK_SIZE
from outdraft.engine.runners.runner import Run

TEXT = "The ferry left the harbour at dawn and the keeper of the lighthouse watched it go. " * 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tokens", type=int, default=150)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    logging.set_verbosity_error()
    path = resolve("smollm2-135m").path
    engine = load_engine()
    single = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32
    )
    draw = random.Random(0)
    inputs = {
        "text": engine.tokenizer.encode(TEXT)[: args.tokens],
        "random": [draw.randrange(engine.vocab_size) for _ in range(args.tokens)],
    }
    table = list(range(1, 2 + args.tokens // BLOCK_SIZE))
    report: dict[str, dict[str, float]] = {}
    with torch.inference_mode():
        theirs = {name: single(torch.tensor([ids])).logits[0] for name, ids in inputs.items()}
        double = single.double()
        for name, ids in inputs.items():
            exact = double(torch.tensor([ids])).logits[0]
            ours = engine._runner.run([Run(ids, 0, table, num_logits=len(ids))]).logits
            pairs: dict[str, tuple[Tensor, Tensor]] = {
                "ours - transformers": (ours, theirs[name]),
                "ours - float64": (ours, exact),
                "transformers - float64": (theirs[name], exact),
            }
            report[name] = {
                f"{label}, {kind}": value
                for label, (a, b) in pairs.items()
                for kind, value in (
                    ("max", float((a - b).abs().max())),
                    ("rms", float((a - b).square().mean().sqrt())),
                )
            }
    if args.json:
        print(json.dumps(report))
        return
    for name, values in report.items():
        for label, value in values.items():
            print(f"{name:8} {label:30} {value:.1e}")


if __name__ == "__main__":
    main()
