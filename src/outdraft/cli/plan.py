"""`outdraft plan`: memory and pairing of a target and a draft, before anything is started."""

import argparse
import json
from dataclasses import replace

from rich.console import Console
from rich.text import Text

from outdraft.errors import OptionError
from outdraft.options import make_settings
from outdraft.plan import (
    Plan,
    PlanSettings,
    find_model,
    parse_gpu,
    parse_memory,
    plan_memory,
    text,
)
from outdraft.plan.devices import parse_bytes
from outdraft.plan.plan import usual_length

# part of a bar → its letter, its letter where only ASCII can be shown, its colour
_LOOK = {
    "target": ("█", "#", "blue"),
    "draft": ("▓", "=", "dark_orange"),
    "reserve": ("▒", "-", "grey50"),
    "kv": ("░", ".", "green"),
    "unused": ("·", " ", "grey35"),
}
_LEGEND = {"target": "target", "draft": "draft", "reserve": "reserve", "kv": "KV cache"}
_BAR_WIDTH, _TITLE_WIDTH = 56, 10


def run(args: argparse.Namespace) -> int:
    plan = _plan_from(args)
    if args.json:
        print(json.dumps(plan.to_json()))
    else:
        _show(plan)
    return 0


def _plan_from(args: argparse.Namespace) -> Plan:
    if args.gpu is not None and args.memory is not None:
        raise OptionError("--gpu and --memory both say how much there is; keep one")
    devices = None if args.gpu is None else parse_gpu(args.gpu)
    if args.memory is not None:
        devices = parse_memory(args.memory)
    size = args.kv_cache_memory_bytes
    kv_cache_bytes = None if size is None else parse_bytes("--kv-cache-memory-bytes", size)
    target = find_model(args.target)
    draft = None if args.draft is None else find_model(args.draft)
    length = args.max_model_len
    plan = plan_memory(
        target,
        draft,
        devices,
        make_settings(
            PlanSettings,
            args,
            max_model_len=usual_length(target) if length is None else length,
            draft_ranks=args.draft_tensor_parallel_size,
            is_probabilistic=args.draft_sample_method == "probabilistic",
            kv_cache_bytes=kv_cache_bytes,
        ),
        method=args.method,
        target_quantization=args.target_quantization,
        draft_quantization=args.draft_quantization,
        suggest=args.suggest,
    )
    if length is not None:
        return plan
    usual = f"texts of {plan.settings.max_model_len:,} tokens are planned, as --max-model-len "
    return replace(plan, notes=(*plan.notes, f"{usual}is not given"))


def _show(plan: Plan) -> None:
    print(*text.summary_lines(plan), sep="\n")
    if plan.room is not None:
        print(f"\n{text.room_table(plan)}\n")
        _show_bars(plan)
        print(text.serving_line(plan))
        print("\nadvice", *text.advice_lines(plan), sep="\n")
    if plan.rules:
        print("\nrules", *text.finding_lines(plan.rules), sep="\n")
    if plan.pairing is not None:
        print("\npairing", *text.finding_lines(plan.pairing.findings), sep="\n")
    print("\nevery mix", text.mix_table(plan), sep="\n")
    if plan.suggestions is not None:
        print("", *text.suggestion_lines(plan.target.name, plan.suggestions), sep="\n")
    notes = [f"note: {note}" for note in plan.notes]
    if plan.room is None:
        notes.append("note: give --gpu or --memory to see what is left for the KV cache")
    if notes:
        print("", *notes, sep="\n")


def _show_bars(plan: Plan) -> None:
    console = Console(highlight=False)
    place = 0 if (console.encoding or "").lower().startswith("utf") else 1
    shown = list(text.bars(plan, _BAR_WIDTH))
    indent = 1 + max([_TITLE_WIDTH, *(len(bar.title) for bar in shown)])
    for bar in shown:
        line = Text(f"{bar.title:{indent}}")
        for kind, width in bar.widths.items():
            line.append(_LOOK[kind][place] * width, _LOOK[kind][2])
        console.print(line.append(f" {bar.label}"), soft_wrap=True)
    if shown:
        legend = Text(" " * indent)
        for kind, title in _LEGEND.items():
            if kind != "draft" or plan.draft is not None:
                legend.append(_LOOK[kind][place], _LOOK[kind][2]).append(f" {title}  ")
        legend.rstrip()
        console.print(legend, soft_wrap=True)
