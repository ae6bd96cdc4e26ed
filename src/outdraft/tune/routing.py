"""What to do where only parts of the traffic win: engines cannot switch by these. Pure."""

from __future__ import annotations

from outdraft.decide.verdict import SHIP, SHIP_FOR
from outdraft.tune.results import LoadResult


def pays_for_all(load: LoadResult) -> bool:
    """Whether speculation may be on for everything a server gets. Where only some parts of the
    traffic win (SHIP FOR) it may if all of it together wins too."""
    decision = None if load.verdict is None else load.verdict["decision"]
    return decision == SHIP or (decision == SHIP_FOR and _wins_together(load))


def routing_of(load: LoadResult) -> str:
    """One line on which parts belong to a server of their own; nothing where none do."""
    if load.verdict is None or load.verdict["decision"] != SHIP_FOR:
        return ""
    parts = ", ".join(load.verdict["ship_for"])
    if pays_for_all(load):
        return f"this mix wins as a whole, the most with {parts}; the rest may lose"
    return f"route {parts} to a server with it; for mixed traffic it stays off"


def _wins_together(load: LoadResult) -> bool:
    best = next((arm for arm in load.arms if arm.name == load.best), None)
    whole = None if best is None else best.ratios.get("e2e")
    return whole is not None and whole.low is not None and whole.low > 1
