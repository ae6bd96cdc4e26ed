"""How the time of a distillation is shared, and what a machine can do in it. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

# Of the time of all stages. What data does not need goes to training, the rest to evaluation.
_EVALUATION_SHARE = 0.1
_DATA_SHARE = 0.35  # of what evaluation leaves
HELD_OUT_SHARE = 0.3  # of the time for data, at most
MEASURES_SHARE = 0.2  # of the time for training, at most: acceptance on held-out texts
# Of the tokens that are written at full speed; others are users' turns, or rows of the batch wait
_ANSWERS_SHARE = 0.7
_FEW_STEPS = 200


@dataclass(frozen=True, slots=True)
class StageTimes:
    """Seconds for each stage."""

    data_s: float
    evaluate_s: float


def share_time(budget_s: float, stages: Sequence[str]) -> StageTimes:
    """A stage alone has all of it. Training gets what data leaves, which may be more than its
    share."""
    evaluate_s = budget_s * (1.0 if len(stages) == 1 else _EVALUATION_SHARE)
    data_s = budget_s if len(stages) == 1 else _DATA_SHARE * (budget_s - evaluate_s)
    return StageTimes(data_s, evaluate_s)


@dataclass(frozen=True, slots=True)
class Speeds:
    """What was measured on this machine; None: of a stage that is not run."""

    tokens_per_s: float | None  # written with all rows of the batch in use
    step_s: float | None  # of a training step

    @property
    def answer_tokens_per_s(self) -> float | None:
        """As it usually comes out."""
        return None if self.tokens_per_s is None else _ANSWERS_SHARE * self.tokens_per_s


@dataclass(frozen=True, slots=True)
class Outlook:
    """What can be done in the time."""

    budget_s: float
    answer_tokens: int | None
    is_limited: bool  # by the number of tokens that was given, not by time
    steps: int | None
    budget_for_steps_s: float | None  # that would give a useful number of steps


def outlook(
    budget_s: float,
    stages: Sequence[str],
    speeds: Speeds,
    *,
    max_answer_tokens: int | None = None,
    max_steps: int | None = None,
) -> Outlook:
    shares = share_time(budget_s, stages)
    tokens, data_s, is_limited = None, 0.0, False
    if speeds.answer_tokens_per_s is not None:
        held_out_s = HELD_OUT_SHARE * shares.data_s
        tokens = int((shares.data_s - held_out_s) * speeds.answer_tokens_per_s)
        is_limited = max_answer_tokens is not None and max_answer_tokens <= tokens
        if is_limited and max_answer_tokens is not None:
            tokens = max_answer_tokens
        data_s = held_out_s + tokens / speeds.answer_tokens_per_s
    steps, needed_s = None, None
    if speeds.step_s is not None:
        alone = len(stages) == 1
        train_s = budget_s - data_s - (0.0 if alone else shares.evaluate_s)
        possible = int((1 - MEASURES_SHARE) * train_s / speeds.step_s)
        steps = possible if max_steps is None else min(possible, max_steps)
        if possible < _FEW_STEPS and (max_steps is None or max_steps > possible):
            for_steps_s = _FEW_STEPS * speeds.step_s / (1 - MEASURES_SHARE)
            others = 1.0 if alone else (1 - _EVALUATION_SHARE) * (1 - _DATA_SHARE)
            needed_s = for_steps_s / others
    return Outlook(budget_s, tokens, is_limited, steps, needed_s)


def outlook_text(found: Outlook, speeds: Speeds, *, on_cpu: bool) -> str:
    """In one sentence, before anything is made."""
    parts = []
    if found.answer_tokens is not None and speeds.answer_tokens_per_s is not None:
        limit = ", the number that was given" if found.is_limited else ""
        pace = f"{_about(speeds.answer_tokens_per_s)} a second"
        parts.append(f"writes about {_about(found.answer_tokens)} answer tokens ({pace}{limit})")
    if found.steps is not None and speeds.step_s is not None:
        parts.append(f"trains for about {found.steps:,} steps ({speeds.step_s:.2g} s each)")
    words = f"in {duration_text(found.budget_s)} this machine {' and '.join(parts)}"
    if found.budget_for_steps_s is not None:
        other = ", or a GPU (--device cuda)" if on_cpu else ""
        words += f"; a draft learns little in fewer than {_FEW_STEPS} steps: give --budget "
        words += f"{duration_text(found.budget_for_steps_s)}{other}"
    return words


def duration_text(seconds: float) -> str:
    """As --budget takes it, rounded up to what a person would write."""
    if seconds < 100:
        return f"{-(-seconds // 1):.0f}s"
    return f"{-(-seconds // 60):.0f}m" if seconds < 2 * 3600 else f"{-(-seconds // 360) / 10:g}h"


def _about(number: float) -> str:
    """To two digits."""
    return f"{float(f'{number:.2g}'):,.0f}" if number >= 1 else f"{number:.2g}"
