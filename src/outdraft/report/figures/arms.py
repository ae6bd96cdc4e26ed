"""Words about arms that several figures need."""

from __future__ import annotations

from outdraft.tune.results import BASELINE, ArmResult, LoadResult


def proposer_of(arm: ArmResult) -> str:
    """The arm's name without its draft length: what proposes, whatever the k."""
    words = arm.name.split()
    kept = [word for word in words if word != f"k={arm.speculation.get('k')}"]
    return " ".join(kept) or arm.name


def draft_length(arm: ArmResult) -> int | None:
    k = arm.speculation.get("k")
    return k if isinstance(k, int) else None


def off_of(load: LoadResult) -> ArmResult | None:
    return next((arm for arm in load.arms if arm.state == BASELINE), None)
