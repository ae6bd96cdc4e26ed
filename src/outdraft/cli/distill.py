"""`outdraft distill`: a draft from a target's own text."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outdraft.cli.options import Option, add_options
from outdraft.distill.storage import STORAGES
from outdraft.errors import OptionError, unknown_choice

if TYPE_CHECKING:
    from outdraft.distill.clock import Tell
    from outdraft.distill.job import Job

_KINDS = ("model", "head")
_STAGES = ("all", "data", "train", "evaluate")
_EXAMPLES = """\
examples:
  outdraft distill --out my-draft --budget 30m --device cuda
  outdraft distill --target ./my-model --prompts traffic.jsonl --kind head --out my-head
  outdraft distill --out my-draft --stage data --budget 6m --device cuda   # then: --stage train
  outdraft distill --out my-draft --stage evaluate --json | jq .measured
Start the same command again after a kill: it goes on where it was.
"""

_MAKING = (
    Option("--target", "the model whose text is wanted, by catalog name, hub id, folder or file",
           default="smollm2-135m", metavar="MODEL"),
    Option("--out", "folder for the draft", metavar="DIR"),
    Option("--kind", "model: a small Llama; head: one layer over the target's hidden states",
           default="model"),
    Option("--stage", f"{', '.join(_STAGES)}", default="all"),
    Option("--prompts", "prompts of your own, JSONL in any usual layout", metavar="FILE"),
    Option("--budget", "time for data and training, or for the stage: 90s, 8m, 1.5h",
           default="30m", metavar="TIME"),
    Option("--device", "cpu, cuda, cuda:1 …", default="cpu"),
    Option("--dtype", "of the target: auto, float32 or bfloat16", default="auto", metavar="TYPE"),
    Option("--threads", "CPU threads", type=int, metavar="N"),
    Option("--seed", "of data and training", default=0, type=int, metavar="N"),
    Option("--from", "go on from the weights of this earlier draft", metavar="DIR"),
    Option("--work", "folder for the training's state (default: OUT/work)", metavar="DIR"),
    Option("--data", "folder for the target's texts (default: WORK/data)", metavar="DIR"),
    Option("--json", "print one JSON object, nothing else", is_switch=True),
)  # fmt: skip

_SIZES = (
    Option("--hidden", "model: hidden size (default: 256)", type=int, metavar="N"),
    Option("--layers", "model: layers (default: 4)", type=int, metavar="N"),
    Option("--heads", "attention heads (default: 4; head: the target's)", type=int, metavar="N"),
    Option("--kv-heads", "heads of keys and values (default: 2; head: the target's)", type=int,
           metavar="N"),
    Option("--intermediate", "width of the feed-forward part (default: 1024; head: the target's "
           "hidden size)", type=int, metavar="N"),
    Option("--draft-vocab", "head: tokens it can draw, the most frequent ones (default: 4096)",
           type=int, metavar="N"),
    Option("--storage", f"head: how its matrices are stored: {', '.join(STORAGES)}",
           default="bfloat16", metavar="TYPE"),
    Option("--taps", "head: three of the target's layers, such as 2,15,29", metavar="A,B,C"),
)  # fmt: skip

_TRAINING = (
    Option("--room", "tokens of a text, prompt included", default=768, type=int, metavar="N"),
    Option("--answer-tokens", "tokens of an answer, at most", default=256, type=int, metavar="N"),
    Option("--max-answer-tokens", "data: stop at so many in all", type=int,
           metavar="N"),
    Option("--top-logits", "of the target, kept for each token", default=32, type=int,
           metavar="N"),
    Option("--shard-texts", "texts of one shard (default: by the device)", type=int, metavar="N"),
    Option("--steps", "end training after so many, if the budget lasts", type=int, metavar="N"),
    Option("--learning-rate", "at the top of the cosine (default: 0.002 model, 0.001 head)",
           type=float, metavar="X"),
    Option("--batch-tokens", "tokens of a training step (default: by the device)", type=int,
           metavar="N"),
    Option("--hard", "weight of the target's likeliest token beside its distribution",
           default=0.2, type=float, metavar="X"),
    Option("--decay", "head: weight of a step of its own beside the one before", default=0.8,
           type=float, metavar="X"),
    Option("--unroll", "head: steps of its own that it is trained on", default=5, type=int,
           metavar="N"),
    Option("--k", "draft length it is measured at", default=5, type=int),
    Option("--held-out-prompts", "of each category, measured while training (default: all, on a "
           "CPU 2)", type=int, metavar="N"),
    Option("--evaluate-prompts", "of each category, at the end with the engine (default: all)",
           type=int, metavar="N"),
    Option("--evaluate-tokens", "tokens of each answer that is measured", default=128, type=int,
           metavar="N"),
)  # fmt: skip


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "distill",
        help="make a draft from a target's own text",
        usage="outdraft distill --out DIR [options]",
        description="Make a draft: the target writes texts, a small model or a head learns to "
        "guess them, and its acceptance is measured on prompts that were held out.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_options(parser, "making", _MAKING)
    add_options(parser, "sizes", _SIZES)
    add_options(parser, "data and training", _TRAINING)
    parser.add_argument("--debug", action="store_true", help=argparse.SUPPRESS)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if args.kind not in _KINDS:
        raise unknown_choice("kind", args.kind, _KINDS)
    if args.stage not in _STAGES:
        raise unknown_choice("stage", args.stage, _STAGES)
    if args.storage not in STORAGES:
        raise unknown_choice("storage", args.storage, STORAGES)
    if args.out is None and not (args.stage == "data" and args.data):
        raise OptionError("no place for the draft; give --out DIR")
    try:
        from outdraft.distill import job as distillation
    except ImportError as error:
        raise OptionError(
            f"distilling needs a package that is not here ({error.name}); "
            "run pip install 'outdraft[engine]'"
        ) from error

    job = job_from(args)
    with _progress(quiet=args.json) as tell:
        report = distillation.run(job, tell)
    if args.json:
        print(json.dumps(report))
    else:
        _show(job, report)
    return 0


def job_from(args: argparse.Namespace) -> Job:
    from outdraft.distill.build import HeadSize
    from outdraft.distill.clock import parse_budget
    from outdraft.distill.data import DataSettings
    from outdraft.distill.job import STAGES, Job
    from outdraft.distill.small_model import ModelSize
    from outdraft.distill.training import TrainSettings

    out = Path(args.out or args.data)
    work = Path(args.work) if args.work else out / "work"
    start = getattr(args, "from")
    on_gpu = args.device.startswith("cuda")
    given = {
        name: getattr(args, name)
        for name in ("hidden", "layers", "heads", "kv_heads", "intermediate")
        if getattr(args, name) is not None
    }
    size: ModelSize | HeadSize
    if args.kind == "model":
        size = ModelSize(**given)
    else:
        for name in ("hidden", "layers"):
            if name in given:
                raise OptionError(f"a head has its target's {name}; --{name} is for --kind model")
        size = HeadSize(**given, draft_vocab=args.draft_vocab, taps=_taps(args.taps))
    budget_s = parse_budget(args.budget)
    batch = (65_536 if args.kind == "model" else 32_768) if on_gpu else 2048
    return Job(
        target=args.target,
        kind=args.kind,
        out=out,
        work=work,
        data=Path(args.data) if args.data else work / "data",
        size=size,
        stages=STAGES if args.stage == "all" else (args.stage,),
        prompts=Path(args.prompts) if args.prompts else None,
        start=Path(start) if start else None,
        storage=args.storage,
        device=args.device,
        dtype=args.dtype,
        threads=args.threads,
        budget_s=budget_s,
        data_settings=DataSettings(
            seed=args.seed,
            room=args.room,
            max_tokens=args.answer_tokens,
            top=args.top_logits,
            shard_texts=args.shard_texts,
            max_answer_tokens=args.max_answer_tokens,
            held_out_prompts=args.held_out_prompts or (None if on_gpu else 2),
            held_out_tokens=min(args.evaluate_tokens, args.answer_tokens),
        ),
        train_settings=TrainSettings(
            seed=args.seed,
            max_steps=args.steps,
            learning_rate=args.learning_rate or (2e-3 if args.kind == "model" else 1e-3),
            batch_tokens=args.batch_tokens or batch,
            hard=args.hard,
            decay=args.decay,
            unroll=args.unroll,
            k=args.k,
        ),
        evaluate_prompts=args.evaluate_prompts,
        evaluate_tokens=args.evaluate_tokens,
    )


def _taps(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise OptionError(f"--taps takes three layers such as 2,15,29, got {text!r}") from None


_LINE_SECONDS = 15.0  # between lines where there is no terminal


@contextmanager
def _progress(*, quiet: bool) -> Iterator[Tell]:
    """A bar with the time left; lines now and then where stderr is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TextColumn("{task.fields[words]}"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal or quiet,
    )
    tasks: dict[str, Any] = {}
    started: dict[str, float] = {}
    ended: set[str] = set()
    told_at = 0.0

    def tell(stage: str, share: float, words: str) -> None:
        nonlocal told_at
        now = time.monotonic()
        if stage == "measure":  # worth a line of its own
            if console.is_terminal and not quiet:
                bar.console.print(f"held-out prompts: {words}")
            else:
                print(f"held-out prompts: {words}", file=sys.stderr, flush=True)
            return
        if console.is_terminal and not quiet:
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=1.0, words="")
            bar.update(tasks[stage], completed=share, words=words)
            return
        if stage not in started:
            started[stage] = now
            told_at = 0.0
        if now - told_at >= _LINE_SECONDS or (share >= 1 and stage not in ended):
            told_at = now
            if share >= 1:
                ended.add(stage)
            left = (now - started[stage]) * (1 - share) / share if share > 0.01 else None
            eta = "" if left is None else f", {left:.0f} s left"
            print(f"{stage} {share:.0%}{eta}: {words}", file=sys.stderr, flush=True)

    with bar:
        yield tell


def _show(job: Job, report: dict[str, Any]) -> None:
    if job.stages == ("data",):
        print(f"{report['texts']:,} texts, {report['answer_tokens']:,} answer tokens in {job.data}")
        return
    for key, words in (("estimated", "counted along held-out texts"), ("measured", "measured")):
        for temperature, one in report.get(key, {}).items():
            figures = one["judged"] if one["judged"]["length"] else one["all"]
            if figures["length"] is not None:
                print(
                    f"temperature {temperature}: first token {figures['first']:.2f}, acceptance "
                    f"length {figures['length']:.2f} at k={job.train_settings.k} ({words})"
                )
    folder = job.out.parent if job.out.suffix == ".gguf" else job.out
    print(f"the draft is in {job.out}; its card is {folder / 'README.md'}")
