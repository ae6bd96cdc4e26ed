"""Requests that failed: whether what is left still says something. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from outdraft.loadgen.load import Run
from outdraft.loadgen.quality import judge
from outdraft.records import Record


def failures_of(arms: Mapping[str, Sequence[Record]]) -> tuple[list[str], bool]:
    """What failed in each arm over all its blocks, and whether that is few enough in every one.

    One failure among the few of a block would look like many, so blocks are not judged one by one.
    """
    problems, few = [], True
    for name, records in arms.items():
        counted = tuple(each for each in records if not each.is_warmup)
        quality = judge(Run(counted, len(counted), started_at="", start_ns=0, pulses=()))
        problems += [f"{name}: {each}" for each in quality.problems]
        few = few and quality.is_valid
    return problems, few
