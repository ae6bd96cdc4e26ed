"""The training stage: a draft learns until its time is up, and goes on after a kill.

The learning rate follows a cosine over the *time* budget (or the number of steps, if that is
given), so a run ends as it should whatever the machine. A checkpoint holds all that the run
depends on: weights, optimizer, the place in the data, the time already spent.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from outdraft.distill.acceptance import measure_acceptance
from outdraft.distill.clock import Stopwatch, Tell
from outdraft.distill.files import read_state, write_state
from outdraft.distill.head_draft import Head
from outdraft.distill.shards import Batch, Corpus
from outdraft.distill.small_model import SmallModel
from outdraft.distill.target import Target
from outdraft.errors import OptionError, OutdraftError

AnyDraft = SmallModel | Head
_STATE = "training.pt"
_WARMUP_STEPS = 50  # at least


@dataclass(frozen=True, slots=True)
class TrainSettings:
    seed: int = 0
    budget_s: float = 480.0
    max_steps: int | None = None
    learning_rate: float = 1e-3
    warmup: float = 0.03  # share of the budget
    batch_tokens: int = 32_768  # of one step, prompts and padding included
    hard: float = 0.2  # weight of the target's likeliest token beside its distribution
    unroll: int = 5  # a head's own steps that it is trained on
    decay: float = 0.8  # weight of a step beside the one before
    k: int = 5  # draft length at which acceptance is measured
    num_measures: int = 6  # during training
    checkpoint_s: float = 60.0

    def __post_init__(self) -> None:
        for name in ("batch_tokens", "unroll", "k", "num_measures"):
            if getattr(self, name) < 1:
                raise OptionError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.max_steps is not None and self.max_steps < 1:
            raise OptionError(f"steps must be at least 1, got {self.max_steps}")
        if not 0 < self.learning_rate < 1 or not 0 <= self.hard <= 1:
            raise OptionError(
                f"a learning rate lies between 0 and 1, so does hard; got {self.learning_rate:g} "
                f"and {self.hard:g}"
            )
        if not 0 < self.decay <= 1:
            raise OptionError(f"decay lies between 0 and 1, got {self.decay:g}")


@dataclass(slots=True)
class Course:
    """Where a training is."""

    step: int = 0
    epoch: int = 0
    place: int = 0  # batches of this epoch already seen
    seconds: float = 0.0
    tokens: int = 0  # seen, prompts and padding included
    loss: float = math.nan
    num_measures: int = 0


def train(
    draft: AnyDraft,
    target: Target,
    corpus: Corpus,
    held_out: Corpus,
    folder: Path,
    settings: TrainSettings,
    tell: Tell,
    on_measure: Callable[[Course, dict[str, Any]], None],
) -> Course:
    """Trains in place. on_measure is given each measurement of acceptance, the last one too."""
    optimizer = _make_optimizer(draft, settings, target.device)
    course = Course()
    if (folder / _STATE).exists():
        course = _resume(folder / _STATE, draft, optimizer, settings)
    clock = Stopwatch(before=course.seconds)
    saved_at = course.seconds
    running: list[Tensor] = []

    def share() -> float:
        steps = course.step / settings.max_steps if settings.max_steps else 0.0
        return max(steps, clock.seconds / settings.budget_s)

    def measure() -> None:
        course.seconds = clock.seconds
        course.num_measures += 1
        on_measure(course, _measured(draft, target, held_out, settings.k))
        draft.train()

    while (done := share()) < 1:
        batches = corpus.epoch(settings.batch_tokens, settings.seed * 7919 + course.epoch)
        if course.place >= len(batches):
            course.epoch, course.place = course.epoch + 1, 0
            continue
        if done >= course.num_measures / settings.num_measures:
            measure()
        for which in batches[course.place :]:
            rate = _rate(share(), course.step, settings)
            batch = corpus.batch(which, target.device)
            running.append(_step(draft, target, batch, optimizer, rate, settings))
            course.step += 1
            course.place += 1
            course.tokens += batch.tokens.numel()
            if course.step % 20 == 0 or len(running) >= 20 or target.device.type == "cpu":
                course.loss = _mean(running)
                running.clear()
                rate = course.tokens / max(clock.seconds, 1e-9)
                words = f"step {course.step}, loss {course.loss:.3f}, {rate:,.0f} tokens/s"
                tell("train", min(share(), 1.0), words)
            done = share()
            due = clock.seconds - saved_at > settings.checkpoint_s
            if done >= 1 or due:
                course.seconds = saved_at = clock.seconds
                _save(folder / _STATE, draft, optimizer, course, settings)
            if done >= 1 or done >= course.num_measures / settings.num_measures:
                break
    measure()
    tell("train", 1.0, f"step {course.step}, loss {course.loss:.3f}")
    return course


def _step(
    draft: AnyDraft,
    target: Target,
    batch: Batch,
    optimizer: torch.optim.Optimizer,
    rate: float,
    settings: TrainSettings,
) -> Tensor:
    for group in optimizer.param_groups:
        group["lr"] = rate * group["share"]
    with mixed_precision(target.device):
        if isinstance(draft, Head):
            loss = draft.loss(
                batch, target, settings.hard, num_steps=settings.unroll, decay=settings.decay
            )
        else:
            loss = draft.loss(batch, target, settings.hard)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(draft.parameters(), 1.0)
    optimizer.step()
    return loss.detach()


def mixed_precision(device: torch.device) -> AbstractContextManager[Any]:
    return torch.autocast("cuda", torch.bfloat16) if device.type == "cuda" else nullcontext()


def _rate(share: float, step: int, settings: TrainSettings) -> float:
    """Up over the warm-up, however few steps that is, then down a cosine."""
    along = max(0.0, share - settings.warmup) / (1 - settings.warmup)
    down = max(0.01, 0.5 * (1 + math.cos(math.pi * min(along, 1.0))))
    up = (share + 1e-3) / (settings.warmup + 1e-3)
    return settings.learning_rate * min(1.0, up, (step + 1) / _WARMUP_STEPS) * down


def _mean(losses: list[Tensor]) -> float:
    mean = float(torch.stack(losses).mean())
    if not math.isfinite(mean):
        raise OutdraftError(
            f"the training came apart (loss {mean}); start again with a lower --learning-rate"
        )
    return mean


def _make_optimizer(
    draft: AnyDraft, settings: TrainSettings, device: torch.device
) -> torch.optim.Optimizer:
    """A step moves every weight by about the rate, and what comes out by that times the inputs:
    matrices with more inputs than the hidden size take smaller steps."""
    hidden = draft.spec.hidden_size
    groups = [
        {
            "params": [parameter],
            "weight_decay": 0.01 if parameter.ndim > 1 else 0.0,
            "share": min(1.0, hidden / parameter.shape[1]) if parameter.ndim > 1 else 1.0,
        }
        for parameter in draft.parameters()
    ]
    return torch.optim.AdamW(
        groups,
        lr=settings.learning_rate,
        betas=(0.9, 0.95),
        fused=device.type == "cuda",
    )


def _measured(draft: AnyDraft, target: Target, held_out: Corpus, k: int) -> dict[str, Any]:
    draft.eval()
    with mixed_precision(target.device):
        return measure_acceptance(draft, target, held_out, k)


def _save(
    path: Path,
    draft: AnyDraft,
    optimizer: torch.optim.Optimizer,
    course: Course,
    settings: TrainSettings,
) -> None:
    write_state(
        path,
        {
            "version": 1,
            "draft": draft.state_dict(),
            "optimizer": optimizer.state_dict(),
            "course": asdict(course),
            "seed": settings.seed,
            "batch_tokens": settings.batch_tokens,
            "random": torch.get_rng_state(),
        },
    )


def _resume(
    path: Path, draft: AnyDraft, optimizer: torch.optim.Optimizer, settings: TrainSettings
) -> Course:
    state = read_state(path)
    try:
        draft.load_state_dict(state["draft"])
        if isinstance(draft, Head):  # texts may have been added since: its vocabulary stays
            draft.choose(draft.d2t.clone())
        optimizer.load_state_dict(state["optimizer"])
        course = Course(**state["course"])
        torch.set_rng_state(state["random"])
        same = (state["seed"], state["batch_tokens"]) == (settings.seed, settings.batch_tokens)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise OptionError(
            f"{path} is of another draft ({reason}); remove it, or give the sizes it was made with"
        ) from None
    if not same:  # batches are cut otherwise: the epoch starts again
        course.place = 0
    return course
