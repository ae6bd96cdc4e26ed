"""A distillation from end to end, or one of its stages: data, train, evaluate.

OUT/                 the draft: config.json, model.safetensors, …, README.md, distill.json
WORK/training.pt     the state that a killed training goes on from
DATA/                the target's texts
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from outdraft.distill.build import HeadSize, make_draft
from outdraft.distill.card import model_card
from outdraft.distill.clock import Tell
from outdraft.distill.data import (
    DataSettings,
    data_folders,
    held_out_path,
    make_data,
    shard_paths,
)
from outdraft.distill.files import read_object, write_json
from outdraft.distill.head_draft import Head
from outdraft.distill.measuring import measure_draft
from outdraft.distill.saving import save_draft
from outdraft.distill.saving_gguf import TYPES, save_gguf
from outdraft.distill.shards import Corpus
from outdraft.distill.small_model import ModelSize, SmallModel
from outdraft.distill.split import first_of_each, held_out
from outdraft.distill.target import Target, load_target
from outdraft.distill.training import Course, TrainSettings, train
from outdraft.errors import OptionError
from outdraft.version import __version__
from outdraft.whole_file import write_text
from outdraft.workload.files import read_prompts
from outdraft.workload.prompt import Prompt
from outdraft.workload.sets import built_in

STAGES = ("data", "train", "evaluate")
REPORT = "distill.json"
_DATA_SHARE = 0.35  # of a budget that is for all stages


@dataclass(frozen=True, slots=True)
class Job:
    target: str
    kind: str  # model or head
    out: Path
    work: Path
    data: Path
    size: ModelSize | HeadSize
    stages: tuple[str, ...] = STAGES
    prompts: Path | None = None
    start: Path | None = None  # an earlier draft to go on from
    storage: str = "bfloat16"  # of a head's matrices
    device: str = "cpu"
    dtype: str = "auto"
    threads: int | None = None
    budget_s: float = 480.0
    data_settings: DataSettings = field(default_factory=DataSettings)
    train_settings: TrainSettings = field(default_factory=TrainSettings)
    evaluate_prompts: int | None = None  # of each category; None: all that are held out
    temperatures: tuple[float, ...] = (0.0, 1.0)
    evaluate_tokens: int = 128


def run(job: Job, tell: Tell) -> dict[str, Any]:
    """Runs the stages; what distill.json holds afterwards (of the data stage alone: its counts)."""
    prompts = built_in() + ([] if job.prompts is None else read_prompts(job.prompts))
    if job.threads is not None:
        torch.set_num_threads(job.threads)
    result: dict[str, Any] = {}
    if "data" in job.stages or "train" in job.stages:
        tell("load", 0.0, job.target)
        target = load_target(job.target, device=job.device, dtype=job.dtype)
        job = _with_budgets(job)
        if "data" in job.stages:
            result = make_data(target, prompts, job.data, job.data_settings, tell)
        if "train" in job.stages:
            result = _train(job, target, tell)
    if "evaluate" in job.stages:
        result = _evaluate(job, held_out(prompts), tell)
    return result


def _with_budgets(job: Job) -> Job:
    if not {"data", "train"} <= set(job.stages):
        data_s = train_s = job.budget_s
    else:
        data_s, train_s = _DATA_SHARE * job.budget_s, (1 - _DATA_SHARE) * job.budget_s
    return replace(
        job,
        data_settings=replace(job.data_settings, budget_s=data_s),
        train_settings=replace(job.train_settings, budget_s=train_s),
    )


def _train(job: Job, target: Target, tell: Tell) -> dict[str, Any]:
    folders = data_folders(job.data, target)
    if not folders:
        raise OptionError(f"{job.data} holds no texts yet; run the data stage first")
    paths = [path for folder in folders for path in shard_paths(folder)]
    tell("train", 0.0, f"reading {len(paths)} shards")
    corpus, measured_on = Corpus(paths), Corpus([held_out_path(folders[0])])
    settings = job.train_settings
    draft = make_draft(job.kind, target, corpus, job.size, seed=settings.seed, start=job.start)
    report: dict[str, Any] = {
        "version": __version__,
        "kind": job.kind,
        "k": settings.k,
        "target": {"name": target.files.name, "licence": target.files.licence},
        "device": _device_words(target.device),
        "shape": _shape(draft, corpus),
        "data": {
            "texts": len(corpus),
            "answer_tokens": corpus.num_answer_tokens,
            "prompts": None if job.prompts is None else job.prompts.name,
        },
        "history": [],
    }

    def on_measure(course: Course, found: dict[str, Any]) -> None:
        figures = {heat: [one["judged"]["first"], one["judged"]["length"]]
                   for heat, one in found.items()}  # fmt: skip
        entry = {"step": course.step, "seconds": round(course.seconds, 1), "loss": course.loss}
        report["history"].append({**entry, "judged": figures})
        report["training"] = {**entry, "tokens": course.tokens, "epoch": course.epoch}
        report["estimated"] = found
        words = ", ".join(
            f"T={heat}: first {first:.2f}, length {length:.2f}"
            for heat, (first, length) in figures.items()
            if first is not None
        )
        tell("measure", min(1.0, course.seconds / settings.budget_s), words)
        save_draft(draft, target, job.out, k=settings.k, storage=job.storage)
        _write_report(job.out, report)

    train(draft, target, corpus, measured_on, job.work, settings, tell, on_measure)
    if isinstance(draft, SmallModel):
        report["gguf"] = [
            name
            for type_name in TYPES
            if save_gguf(draft, target, job.out / (name := f"draft-{type_name}.gguf"), type_name)
        ]
        _write_report(job.out, report)
    return report


def _evaluate(job: Job, prompts: Sequence[Prompt], tell: Tell) -> dict[str, Any]:
    draft = _draft_in(job.out)
    chosen = first_of_each(prompts, job.evaluate_prompts)
    path = draft.parent / REPORT if draft.is_file() else draft / REPORT
    report = read_object(path) if path.exists() else {}
    measured = measure_draft(
        job.target,
        draft,
        job.kind,
        chosen,
        k=job.train_settings.k,
        temperatures=job.temperatures,
        max_tokens=job.evaluate_tokens,
        device=job.device,
        threads=job.threads,
        tell=tell,
    )
    report["measured"] = measured
    if "shape" in report:
        _write_report(path.parent, report)
    return report


def _draft_in(out: Path) -> Path:
    """A draft's folder or GGUF file; a folder of GGUF files alone: the smaller of them."""
    if out.suffix == ".gguf" and out.is_file():
        return out
    if (out / "config.json").exists():
        return out
    if (small := out / f"draft-{TYPES[-1]}.gguf").exists():
        return small
    raise OptionError(f"{out} holds no draft yet; run the train stage first")


def _write_report(out: Path, report: dict[str, Any]) -> None:
    write_json(out / REPORT, report)
    write_text(out / "README.md", model_card(report))


def _device_words(device: torch.device) -> str:
    if device.type == "cuda":
        return f"one {torch.cuda.get_device_name(device)}"
    return f"a CPU with {torch.get_num_threads()} threads"


def _shape(draft: SmallModel | Head, corpus: Corpus) -> dict[str, Any]:
    count = sum(parameter.numel() for parameter in draft.parameters())
    spec = draft.spec
    shape: dict[str, Any] = {
        "parameters": f"{count:,}",
        "hidden_size": spec.hidden_size,
        "layers": 1 if isinstance(draft, Head) else draft.spec.num_layers,
        "heads": f"{spec.num_heads} over {spec.num_kv_heads} kv heads of {spec.head_dim}",
        "intermediate_size": spec.intermediate_size,
    }
    if isinstance(draft, Head):
        counts = corpus.frequencies(spec.vocab_size)
        covered = counts[draft.d2t.cpu()].sum() / counts.sum()
        shape["draft_vocabulary"] = (
            f"{draft.spec.draft_vocab_size} tokens, {covered:.1%} of what the target writes"
        )
        shape["tapped_layers"] = ", ".join(map(str, draft.taps))
    return shape
