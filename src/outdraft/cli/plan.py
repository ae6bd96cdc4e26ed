"""`outdraft plan`: what a target and a draft take, before anything is started."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from outdraft.cli.options import Option, add_options
from outdraft.errors import OptionError

if TYPE_CHECKING:
    from outdraft.plan import Devices, Plan

_EXAMPLES = """\
examples:
  outdraft plan --target llama-3.1-70b --draft llama-3.1-8b --gpu h100:2
  outdraft plan --target llama-3.1-70b --draft llama-3.1-8b --gpu h200:2 --max-model-len 8192 --json
  outdraft plan --target qwen3-32b --gpu h200 --suggest
  outdraft plan --target ./my-model --draft ./my-eagle3-head --memory 79.6GiB
"""

_MODELS = (
    Option(
        "--target",
        "a name of the table (llama-3.1-70b, qwen3-8b …) or of the catalog, a folder, a .gguf "
        "file or a hub id; only headers are read",
        metavar="MODEL",
    ),
    Option("--draft", "named like a target; or the folder of an EAGLE head", metavar="MODEL"),
    Option("--suggest", "list drafts of the table for the target", is_switch=True),
    Option(
        "--target-quantization",
        "bf16, fp8, int8, int4, mxfp4 or files (default: as its files are, else as published)",
        metavar="FORMAT",
    ),
    Option("--draft-quantization", "the same for the draft", metavar="FORMAT"),
)
_MEMORY = (
    Option("--gpu", "its name and how many: h100, h200:2, rtx4090 …", metavar="NAME[:N]"),
    Option("--memory", "instead of a name: 80GB, 79.6GiB:2 …", metavar="SIZE[:N]"),
    Option(
        "--utilization",
        "share of each device's memory that the engine may take",
        default=0.92,
        type=float,
        metavar="SHARE",
    ),
    Option(
        "--kv-cache-memory-bytes",
        "the KV cache's size on each device instead, such as 1GiB",
        metavar="SIZE",
    ),
    Option("--kv-dtype", "bfloat16, float16, float32 or fp8", default="bfloat16", metavar="TYPE"),
)
_SERVING = (
    Option(
        "--max-model-len",
        "tokens a text may have (default: what the target reads)",
        type=int,
        metavar="N",
    ),
    Option("--max-num-seqs", "texts written at once at most", default=256, type=int, metavar="N"),
    Option(
        "--max-num-batched-tokens",
        "tokens computed in one step at most",
        default=8192,
        type=int,
        metavar="N",
    ),
    Option("--k", "draft length: tokens proposed in one round", default=5, type=int),
    Option(
        "--draft-tensor-parallel-size",
        "devices of the draft: 1 or all (default: all)",
        type=int,
        metavar="N",
    ),
    Option(
        "--draft-sample-method",
        "probabilistic keeps the draft's logits; greedy does not",
        default="probabilistic",
        metavar="HOW",
    ),
    Option("--enforce-eager", "no CUDA graphs", is_switch=True),
    Option("--json", "print one JSON object, nothing else", is_switch=True),
)

# kind of a bar's piece → its letter, its letter where only ASCII can be shown, its colour
_LOOK = {
    "target": ("█", "#", "blue"),
    "draft": ("▓", "=", "dark_orange"),
    "reserve": ("▒", "-", "grey50"),
    "kv": ("░", ".", "green"),
    "unused": ("·", " ", "grey35"),
}
_LEGEND = {"target": "target", "draft": "draft", "reserve": "reserve", "kv": "KV cache"}
_BAR_WIDTH = 56


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "plan",
        help="memory and pairing, before anything is started",
        usage="outdraft plan --target MODEL [--draft MODEL] [--gpu NAME:N] [options]",
        description="What a target and a draft take in every quantization, what speculation "
        "costs in KV cache, and whether the two can work together. No GPU is needed.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_options(parser, "models", _MODELS)
    add_options(parser, "memory", _MEMORY)
    add_options(parser, "serving", _SERVING)
    parser.add_argument("--debug", action="store_true", help=argparse.SUPPRESS)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from outdraft.plan import Settings, find_model, make_plan
    from outdraft.plan.devices import parse_bytes

    if args.target is None:
        raise OptionError("--target is missing; name a model, such as --target llama-3.1-8b")
    if args.draft_sample_method not in ("probabilistic", "greedy"):
        raise OptionError(
            f"--draft-sample-method is probabilistic or greedy, got {args.draft_sample_method!r}"
        )
    devices = _devices(args)
    size = args.kv_cache_memory_bytes
    kv_cache_bytes = None if size is None else parse_bytes("--kv-cache-memory-bytes", size)
    target = find_model(args.target)
    draft = None if args.draft is None else find_model(args.draft)
    longest = args.max_model_len
    plan = make_plan(
        target,
        draft,
        devices,
        Settings(
            max_model_len=target.architecture.max_context if longest is None else longest,
            max_num_seqs=args.max_num_seqs,
            max_num_batched_tokens=args.max_num_batched_tokens,
            k=args.k,
            kv_dtype=args.kv_dtype,
            utilization=args.utilization,
            draft_ranks=args.draft_tensor_parallel_size,
            is_probabilistic=args.draft_sample_method == "probabilistic",
            enforce_eager=args.enforce_eager,
            kv_cache_bytes=kv_cache_bytes,
        ),
        target_quantization=args.target_quantization,
        draft_quantization=args.draft_quantization,
        suggest=args.suggest,
    )
    if args.json:
        print(json.dumps(plan.to_json()))
    else:
        _show(plan)
    return 0


def _devices(args: argparse.Namespace) -> Devices | None:
    from outdraft.plan import parse_gpu, parse_memory

    if args.gpu is not None and args.memory is not None:
        raise OptionError("--gpu and --memory both say how much there is; keep one")
    if args.gpu is not None:
        return parse_gpu(args.gpu)
    return None if args.memory is None else parse_memory(args.memory)


def _show(plan: Plan) -> None:
    from outdraft.plan import text

    print("\n".join(text.head_lines(plan)))
    if plan.room is not None:
        print(f"\n{text.room_table(plan)}\n")
        _show_bars(plan)
        print(text.serving_line(plan))
    if plan.rules:
        print("\nrules")
        print("\n".join(text.finding_lines(plan.rules)))
    if plan.pairing is not None:
        print("\npairing")
        print("\n".join(text.finding_lines(plan.pairing.findings)))
    print("\nevery mix")
    print(text.mix_table(plan.mixes, has_draft=plan.draft is not None))
    if plan.suggestions is not None:
        print()
        print("\n".join(text.suggestion_lines(plan.target.name, plan.suggestions)))
    notes = [f"note: {note}" for note in plan.notes]
    if plan.room is None:
        notes.append("note: give --gpu or --memory to see what is left for the KV cache")
    if notes:
        print()
        print("\n".join(notes))


def _show_bars(plan: Plan) -> None:
    from rich.console import Console
    from rich.text import Text

    from outdraft.plan.text import bars

    console = Console(highlight=False)
    place = 0 if (console.encoding or "").lower().startswith("utf") else 1
    shown = list(bars(plan, _BAR_WIDTH))
    for bar in shown:
        line = Text(f"{bar.title:10} ")
        for piece in bar.pieces:
            line.append(_LOOK[piece.kind][place] * piece.width, _LOOK[piece.kind][2])
        console.print(line.append(f" {bar.told}"), soft_wrap=True)
    if shown:
        legend = Text(" " * 11)
        for kind, title in _LEGEND.items():
            if kind != "draft" or plan.draft is not None:
                legend.append(_LOOK[kind][place], _LOOK[kind][2]).append(f" {title}  ")
        legend.rstrip()
        console.print(legend, soft_wrap=True)
