"""Arms that measured higher than the one that was judged, and why they are not the answer. Pure."""

from collections.abc import Sequence

from outdraft.tune.final_prompts import other_prompts
from outdraft.tune.results import BASELINE, DROPPED, FAILED, RACED, ArmResult, LoadResult
from outdraft.tune.wording import joined, loads_text, speedup_text

_MOST_NAMED = 3  # arms of a sentence


def measured_higher(load: LoadResult) -> tuple[ArmResult, ...]:
    """The highest first."""
    judged = load.measured
    if judged is None:
        return ()
    higher = [
        (arm.measured.estimate, arm)
        for arm in load.arms
        if arm.measured is not None
        and arm.measured.estimate > judged.estimate
        and arm.name != load.best
        and arm.state != BASELINE
    ]
    return tuple(arm for _, arm in sorted(higher, key=lambda each: -each[0]))


def why_not_higher(load: LoadResult) -> tuple[str, ...]:
    """In whole sentences; () where no arm measured higher."""
    higher, best = measured_higher(load), load.best_arm
    if not higher or best is None:
        return ()
    here = f"At {loads_text([load])}"
    sentences = []
    if raced := [arm for arm in higher if arm.state != FAILED]:
        sentences.append(f"{here} {_compared(raced, best, load)}")
    sentences += [
        f"{here} {_named(arm)} measured higher and failed: {arm.reason}."
        for arm in higher
        if arm.state == FAILED
    ]
    return tuple(sentences)


def _compared(raced: Sequence[ArmResult], best: ArmResult, load: LoadResult) -> str:
    names = [_named(arm) for arm in raced[:_MOST_NAMED]]
    if len(raced) > _MOST_NAMED:
        names.append(f"{len(raced) - _MOST_NAMED} more")
    if load.verdict is None:
        return (
            f"{joined(names)} measured higher than {_named(best)}. The choice also counts what was "
            "predicted and what other draft lengths showed, the more so the fewer blocks there are."
        )
    others, likely = other_prompts(load), "highest of several figures is likely to be too high"
    why = f"{others}, and the {likely}" if others else f"The {likely}"
    said = f"{joined(names)} measured higher in the race than {_named(best)} in the final. {why}"
    if best.raced is None:
        return f"{said}{_by_prediction(raced, best, load)}."
    was_ahead = all((arm.speedup or 0.0) <= best.raced.estimate for arm in raced)
    more = "" if was_ahead else ", and predictions and other draft lengths counted too"
    return f"{said}; in the race {best.name} had {best.raced.estimate:.2f}x{more}."


def _by_prediction(others: Sequence[ArmResult], best: ArmResult, load: LoadResult) -> str:
    """Where it was: no arm had more than its first blocks, which are not weighed by themselves.
    Results of before do not say what raced, nor of which prompts the final was."""
    if load.prompts is None or any(arm.fate in (RACED, DROPPED) for arm in load.arms):
        return ""
    told = [(arm.name, arm.predicted) for arm in (best, *others) if arm.predicted is not None]
    figures = [predicted for _, predicted in told]
    if len(told) <= len(others) or max(figures) > figures[0]:
        return ""
    predicted = ", ".join(f"{name} {figure:.2f}x" for name, figure in told[: 1 + _MOST_NAMED])
    return f"; the choice was made by what the first blocks predicted: {predicted}"


def _named(arm: ArmResult) -> str:
    return f"{arm.name} ({speedup_text(arm.measured)})"
