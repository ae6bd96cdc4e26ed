"""The training stage: a draft learns until its time is up, and continues after a kill.

The learning rate follows a cosine over the *time* budget (or the number of steps, if that is
given), so that a run ends with a small rate on any machine. A checkpoint holds everything that the
run depends on: weights, optimizer, position in the data, time already spent.
"""

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from outdraft.distill.data.shards import Corpus, TextBatch
from outdraft.distill.evaluation import estimate_acceptance
from outdraft.distill.settings import OnProgress, TrainSettings
from outdraft.distill.target import Target
from outdraft.distill.timing import MEASURES_SHARE
from outdraft.distill.training.drafts import AnyDraft
from outdraft.distill.training.head_model import HeadModel
from outdraft.errors import OptionError, OutdraftError
from outdraft.whole_file import write_whole

_WARMUP_STEPS = 50  # at least
_LOSSES = 20  # steps on a GPU between two looks at the loss


@dataclass(slots=True)
class TrainingState:
    step: int = 0
    epoch: int = 0
    place: int = 0  # batches of this epoch that are done
    seconds: float = 0.0
    tokens: int = 0  # seen, prompts and padding included
    loss: float = math.nan
    num_measures: int = 0


class Trainer:
    """A draft with its optimizer: one step at a time."""

    def __init__(self, draft: AnyDraft, target: Target, settings: TrainSettings) -> None:
        self._draft, self._target, self._settings = draft, target, settings
        self.optimizer = _make_optimizer(draft, settings, target.device)

    def gradients(self, batch: TextBatch) -> Tensor:
        """The loss, and its gradients in the draft's weights."""
        with _mixed_precision(self._target.device):
            loss = self._draft.loss(batch, self._target, self._settings)
        self.forget_gradients()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._draft.parameters(), 1.0)
        return loss.detach()

    def forget_gradients(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)

    def step(self, batch: TextBatch, rate: float) -> Tensor:
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["share"]
        loss = self.gradients(batch)
        self.optimizer.step()
        return loss


def train(
    draft: AnyDraft,
    target: Target,
    corpus: Corpus,
    held_out: Corpus,
    folder: Path,
    settings: TrainSettings,
    on_progress: OnProgress,
    on_measure: Callable[[TrainingState, dict[str, Any]], None],
    *,
    clock: Callable[[], float] = time.monotonic,
) -> TrainingState:
    """Trains in place. on_measure is called with each estimate of acceptance, also the last; they
    are fewer than asked for where they would take too much of the time."""
    trainer = Trainer(draft, target, settings)
    checkpoint = _Checkpoint(folder / "training.pt", draft, trainer.optimizer, settings)
    state = checkpoint.load() if checkpoint.path.exists() else TrainingState()
    started = clock() - state.seconds
    saved_at = state.seconds
    losses: list[Tensor] = []
    num_measures, measure_s = settings.num_measures, 0.0

    def elapsed() -> float:
        return clock() - started

    def share() -> float:
        """The last measure has its time kept for it."""
        steps = state.step / settings.steps if settings.steps else 0.0
        return max(steps, elapsed() / max(settings.budget_s - measure_s, 1e-9))

    def measure() -> None:
        nonlocal num_measures, measure_s
        before = clock()
        state.seconds = elapsed()
        state.num_measures += 1
        draft.eval()
        with _mixed_precision(target.device):
            estimate = estimate_acceptance(draft, target, held_out, settings.k)
        on_measure(state, estimate)
        draft.train()
        measure_s = clock() - before
        most = int(MEASURES_SHARE * settings.budget_s / max(measure_s, 1e-9))
        num_measures = min(num_measures, max(most - 1, 1))  # the last one is not among them

    while (done := share()) < 1:
        batches = corpus.epoch(settings.batch_tokens, settings.seed * 7919 + state.epoch)
        if state.place >= len(batches):
            state.epoch, state.place = state.epoch + 1, 0
            continue
        if done >= state.num_measures / num_measures:
            measure()
        for members in batches[state.place :]:
            batch = corpus.batch(members, target.device)
            losses.append(trainer.step(batch, _learning_rate(share(), state.step, settings)))
            state.step += 1
            state.place += 1
            state.tokens += batch.tokens.numel()
            # Reading a loss makes a GPU wait.
            if state.step % _LOSSES == 0 or target.device.type == "cpu":
                state.loss = float(torch.stack(losses).mean())
                if not math.isfinite(state.loss):
                    raise OutdraftError(
                        f"training diverged (loss {state.loss}); start again with a lower "
                        "--learning-rate"
                    )
                losses.clear()
                speed = state.tokens / max(elapsed(), 1e-9)
                words = f"step {state.step}, loss {state.loss:.3f}, {speed:,.0f} tokens/s"
                on_progress("train", min(share(), 1.0), words)
            done = share()
            if done >= 1 or elapsed() - saved_at > settings.checkpoint_s:
                state.seconds = saved_at = elapsed()
                checkpoint.save(state)
            if done >= 1 or done >= state.num_measures / num_measures:
                break
    measure()
    on_progress("train", 1.0, f"step {state.step}, loss {state.loss:.3f}")
    return state


def _mixed_precision(device: torch.device) -> torch.autocast:
    return torch.autocast("cuda", torch.bfloat16, enabled=device.type == "cuda")


def _learning_rate(share: float, step: int, settings: TrainSettings) -> float:
    """Linear warm-up over a share of the budget and at least _WARMUP_STEPS, then a cosine."""
    along = max(0.0, share - settings.warmup) / (1 - settings.warmup)
    down = max(0.01, 0.5 * (1 + math.cos(math.pi * min(along, 1.0))))
    up = (share + 1e-3) / (settings.warmup + 1e-3)
    return settings.learning_rate * min(1.0, up, (step + 1) / _WARMUP_STEPS) * down


def _make_optimizer(
    draft: AnyDraft, settings: TrainSettings, device: torch.device
) -> torch.optim.Optimizer:
    """AdamW. Every weight moves by about the rate, so an output moves by the rate times the number
    of inputs: matrices with more inputs than the hidden size take smaller steps."""
    hidden = draft.spec.hidden_size
    groups = [
        {
            "params": [parameter],
            "weight_decay": 0.01 if parameter.ndim > 1 else 0.0,
            "share": min(1.0, hidden / parameter.shape[1]) if parameter.ndim > 1 else 1.0,
        }
        for parameter in draft.parameters()
    ]
    fused = device.type == "cuda"
    return torch.optim.AdamW(groups, lr=settings.learning_rate, betas=(0.9, 0.95), fused=fused)


@dataclass(frozen=True, slots=True)
class _Checkpoint:
    path: Path
    draft: AnyDraft
    optimizer: torch.optim.Optimizer
    settings: TrainSettings

    def save(self, state: TrainingState) -> None:
        content = {
            "version": 1,
            "draft": self.draft.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "course": asdict(state),
            "seed": self.settings.seed,
            "batch_tokens": self.settings.batch_tokens,
            "random": torch.get_rng_state(),
        }
        try:
            write_whole(self.path, lambda file: torch.save(content, file))
        except RuntimeError as error:  # torch's own error for a write that failed
            if "write" not in str(error):
                raise
            raise OutdraftError(f"cannot write {self.path}: is the disk full?") from error

    def load(self) -> TrainingState:
        path, draft = self.path, self.draft
        try:
            content = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # of many types, by where the file was cut
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            advice = "remove it to start again"
            raise OptionError(f"{path} cannot be read ({reason}); {advice}") from error
        try:
            draft.load_state_dict(content["draft"])
            if isinstance(draft, HeadModel):  # with new texts too, its vocabulary stays
                draft.set_vocabulary(draft.d2t.clone())
            self.optimizer.load_state_dict(content["optimizer"])
            state = TrainingState(**content["course"])
            torch.set_rng_state(content["random"])
            earlier = (content["seed"], content["batch_tokens"])
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            reason = str(error).splitlines()[0]
            advice = "remove it, or give the sizes it was made with"
            raise OptionError(f"{path} is of another draft ({reason}); {advice}") from None
        if earlier != (self.settings.seed, self.settings.batch_tokens):
            state.place = 0  # other batches: the epoch starts again
        return state
