"""Which proposer and which draft length every sequence gets in a round (pure)."""

from outdraft.engine.controller.controller import Controller
from outdraft.engine.controller.words import (
    Candidate,
    DraftPlan,
    LookupDraft,
    Outcome,
    StepTimes,
    Why,
    Wish,
)

__all__ = [
    "Candidate",
    "Controller",
    "DraftPlan",
    "LookupDraft",
    "Outcome",
    "StepTimes",
    "Why",
    "Wish",
]
