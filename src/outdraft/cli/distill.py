"""`outdraft distill`: makes a draft from a target's own texts."""

import argparse
import json
from typing import Any

from outdraft.cli.progress import show_stages
from outdraft.distill.settings import DistillSettings, distill_settings


def run(args: argparse.Namespace) -> int:
    settings = distill_settings(args)
    # torch: only a distillation needs it, not --help.
    from outdraft.distill.pipeline import run_distillation

    with show_stages(quiet=args.json) as on_progress:
        report = run_distillation(settings, on_progress)
    if args.json:
        print(json.dumps(report))
    else:
        _show(settings, report)
    return 0


def _show(settings: DistillSettings, report: dict[str, Any]) -> None:
    if settings.stages == ("data",):
        counts = f"{report['texts']:,} texts, {report['answer_tokens']:,} answer tokens"
        print(f"{counts} in {settings.data}")
        return
    for key, words in (("estimated", "estimated along held-out texts"), ("measured", "measured")):
        for temperature, one in report.get(key, {}).items():
            figures = one["judged"] if one["judged"]["length"] else one["all"]
            if figures["length"] is not None:
                print(
                    f"temperature {temperature}: first token {figures['first']:.2f}, acceptance "
                    f"length {figures['length']:.2f} at k={settings.train_settings.k} ({words})"
                )
    folder = settings.out.parent if settings.out.suffix == ".gguf" else settings.out
    print(f"the draft is in {settings.out}; its card is {folder / 'README.md'}")
