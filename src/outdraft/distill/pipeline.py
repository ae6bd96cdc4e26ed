"""Runs a distillation from end to end, or one of its stages: data, train, evaluate.

OUT/                 the draft: config.json, model.safetensors, …, README.md, distill.json
WORK/training.pt     the checkpoint from which a killed training continues
DATA/                the target's texts
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from outdraft.distill.card import model_card
from outdraft.distill.data.dataset import (
    data_folders,
    held_out_path,
    make_data,
    make_sampler,
    seconds_spent,
    shard_paths,
)
from outdraft.distill.data.prompts import first_of_each, in_rounds, split_prompts
from outdraft.distill.data.shards import Corpus
from outdraft.distill.evaluation import measure_acceptance
from outdraft.distill.probe import measure_speeds, step_seconds
from outdraft.distill.saving.folder import save_draft
from outdraft.distill.saving.gguf_file import TYPES, save_gguf
from outdraft.distill.settings import DistillSettings, OnProgress
from outdraft.distill.target import Target, load_target
from outdraft.distill.timing import Speeds, outlook, outlook_text, share_time
from outdraft.distill.training.drafts import AnyDraft, make_draft
from outdraft.distill.training.head_model import HeadModel
from outdraft.distill.training.small_model import SmallModel
from outdraft.distill.training.train import TrainingState, train
from outdraft.errors import OptionError
from outdraft.version import __version__
from outdraft.whole_file import read_json, write_json, write_text
from outdraft.workload.files import read_prompts
from outdraft.workload.prompt import Prompt
from outdraft.workload.training import add_training_digests, listed_digests, unseen_prompts

REPORT = "distill.json"


def run_distillation(
    settings: DistillSettings,
    on_progress: OnProgress,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, Any]:
    """Runs the stages; returns the contents of distill.json, or the data stage's counts."""
    notes: list[str] = []
    own = [] if settings.prompts is None else read_prompts(settings.prompts, notes)
    for note in notes:
        on_progress("note", 0.0, note)
    training, held_out = split_prompts(own)
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    result: dict[str, Any] = {}
    shares = share_time(settings.budget_s, settings.stages)
    started = clock()
    if "data" in settings.stages or "train" in settings.stages:
        on_progress("load", 0.0, settings.target)
        target = load_target(settings.target, device=settings.device, dtype=settings.dtype)
        started = clock()  # a model may have to be fetched first
        if "data" in settings.stages:
            result = _make_data(settings, target, training, held_out, on_progress, clock)
        if "train" in settings.stages:
            # What earlier runs spent on data counts, what they trained for is in the checkpoint.
            spent_s = clock() - started
            if "data" in settings.stages:
                spent_s = max(spent_s, seconds_spent(settings.data))
            kept_s = shares.evaluate_s if "evaluate" in settings.stages else 0.0
            left_s = max(settings.budget_s - kept_s - spent_s, 1.0)
            result = _train(settings, target, training, left_s, on_progress, clock)
    if "evaluate" in settings.stages:
        limit_s = max(shares.evaluate_s, settings.budget_s - (clock() - started))
        result = _evaluate(settings, held_out, limit_s, on_progress, clock)
    return result


def _make_data(
    job: DistillSettings,
    target: Target,
    training: Sequence[Prompt],
    held_out: Sequence[Prompt],
    on_progress: OnProgress,
    clock: Callable[[], float],
) -> dict[str, int]:
    """First it is tried, and said, what this machine can do in the time."""
    before = clock()
    on_progress("probe", 0.0, "how fast this machine is")
    settings = job.data_settings
    sampler = make_sampler(target, settings)
    speeds = measure_speeds(target, sampler, training, job, clock)
    on_progress("probe", 1.0, "done")
    found = outlook(
        job.budget_s,
        job.stages,
        speeds,
        max_answer_tokens=settings.max_answer_tokens,
        max_steps=job.train_settings.steps,
    )
    on_cpu = target.device.type == "cpu"
    on_progress("note", 0.0, outlook_text(found, speeds, on_cpu=on_cpu))
    data_s = share_time(job.budget_s, job.stages).data_s - (clock() - before)
    settings = replace(settings, budget_s=max(data_s, 1.0))
    return make_data(
        target, training, held_out, job.data, settings, on_progress, sampler=sampler, clock=clock
    )


def _train(
    job: DistillSettings,
    target: Target,
    prompts: Sequence[Prompt],
    budget_s: float,
    on_progress: OnProgress,
    clock: Callable[[], float],
) -> dict[str, Any]:
    folders = data_folders(job.data, target)
    if not folders:
        raise OptionError(f"{job.data} holds no texts yet; run the data stage first")
    paths = [shard for folder in folders for shard in shard_paths(folder)]
    on_progress("train", 0.0, f"reading {len(paths)} shards")
    corpus, held_out_texts = Corpus(paths), Corpus([held_out_path(folders[0])])
    settings = replace(job.train_settings, budget_s=budget_s)
    draft = make_draft(target, corpus, job.size, seed=settings.seed, start=job.start)
    if "data" not in job.stages:  # else it is said already
        speeds = Speeds(None, step_seconds(draft, target, corpus, settings, clock))
        found = outlook(job.budget_s, job.stages, speeds, max_steps=settings.steps)
        on_cpu = target.device.type == "cpu"
        on_progress("note", 0.0, outlook_text(found, speeds, on_cpu=on_cpu))
    device = f"a CPU with {torch.get_num_threads()} threads"
    if target.device.type == "cuda":
        device = f"one {torch.cuda.get_device_name(target.device)}"
    path = job.out / REPORT
    report: dict[str, Any] = {
        "version": __version__,
        "kind": job.kind,
        "k": settings.k,
        "target": {"name": target.files.name, "licence": target.files.licence},
        "device": device,
        "shape": _shape(draft, corpus),
        "data": {
            "texts": len(corpus),
            "answer_tokens": corpus.num_answer_tokens,
            "prompts": None if job.prompts is None else job.prompts.name,
        },
        "history": read_json(path).get("history", []) if path.exists() else [],
    }

    def on_measure(state: TrainingState, estimate: dict[str, Any]) -> None:
        figures = {
            temperature: [one["judged"]["first"], one["judged"]["length"]]
            for temperature, one in estimate.items()
        }
        loss = None if math.isnan(state.loss) else state.loss  # JSON has no NaN
        entry = {"step": state.step, "seconds": round(state.seconds, 1), "loss": loss}
        # A run that continues keeps what was measured before its checkpoint.
        kept = [earlier for earlier in report["history"] if earlier["step"] < state.step]
        report["history"] = [*kept, {**entry, "judged": figures}]
        report["training"] = {**entry, "tokens": state.tokens, "epoch": state.epoch}
        report["estimated"] = estimate
        words = ", ".join(
            f"T={temperature}: first {first:.2f}, length {length:.2f}"
            for temperature, (first, length) in figures.items()
            if first is not None
        )
        on_progress("measure", min(1.0, state.seconds / settings.budget_s), words)
        save_draft(draft, target, job.out, k=settings.k, storage=job.storage)
        _write_report(job.out, report)

    add_training_digests(job.out, _trained_on(job, folders, prompts, on_progress))
    train(
        draft, target, corpus, held_out_texts, job.work, settings, on_progress, on_measure,
        clock=clock,
    )  # fmt: skip
    if isinstance(draft, SmallModel):
        files = {f"draft-{type_name}.gguf": type_name for type_name in TYPES}
        written = (name for name in files if save_gguf(draft, target, job.out / name, files[name]))
        report["gguf"] = list(written)
        _write_report(job.out, report)
    return report


def _trained_on(
    job: DistillSettings,
    folders: Sequence[Path],
    prompts: Sequence[Prompt],
    on_progress: OnProgress,
) -> set[str]:
    """Digests of the prompts of the texts, and of the earlier draft that training starts from.
    A folder of an earlier version lists none: those given now stand for them."""
    digests: set[str] = set()
    for folder in (*folders, *([] if job.start is None else [job.start])):
        listed = listed_digests(folder)
        if listed is None:
            listed = frozenset(prompt.digest for prompt in prompts)
            note = f"{folder} does not list its prompts; those given now are listed for it"
            on_progress("note", 0.0, note)
        digests |= listed
    return digests


def _evaluate(
    job: DistillSettings,
    prompts: Sequence[Prompt],
    limit_s: float,
    on_progress: OnProgress,
    clock: Callable[[], float],
) -> dict[str, Any]:
    """The draft is a folder or a GGUF file; in a folder of GGUF files alone, the smaller one."""
    small = job.out / f"draft-{TYPES[-1]}.gguf"
    is_file = job.out.suffix == ".gguf" and job.out.is_file()
    draft = job.out if is_file or (job.out / "config.json").exists() else small
    if not draft.exists():
        raise OptionError(f"{job.out} holds no draft yet; run the train stage first")
    path = (draft.parent if draft.is_file() else draft) / REPORT
    report = read_json(path) if path.exists() else {}
    # A user may have trained with other --prompts than are given now.
    unseen, notes = unseen_prompts(prompts, [str(draft.absolute())])
    for note in notes:
        on_progress("note", 0.0, note)
    chosen = in_rounds(first_of_each(unseen, job.evaluate_prompts))
    report["measured"] = measure_acceptance(
        job, draft, chosen, on_progress, limit_s=limit_s, clock=clock
    )
    if "shape" in report:
        _write_report(path.parent, report)
    return report


def _write_report(out: Path, report: dict[str, Any]) -> None:
    write_json(out / REPORT, report, indent=2)
    write_text(out / "README.md", model_card(report))


def _shape(draft: AnyDraft, corpus: Corpus) -> dict[str, Any]:
    spec = draft.spec
    shape: dict[str, Any] = {
        "parameters": f"{sum(parameter.numel() for parameter in draft.parameters()):,}",
        "hidden_size": spec.hidden_size,
        "layers": spec.num_layers,
        "heads": f"{spec.num_heads} over {spec.num_kv_heads} kv heads of {spec.head_dim}",
        "intermediate_size": spec.intermediate_size,
    }
    if isinstance(draft, HeadModel):
        counts = corpus.frequencies(spec.vocab_size)
        covered = counts[draft.d2t.cpu()].sum() / counts.sum()
        size = draft.spec.draft_vocab_size
        shape["draft_vocabulary"] = f"{size} tokens, {covered:.1%} of what the target writes"
        shape["tapped_layers"] = ", ".join(map(str, draft.taps))
    return shape
