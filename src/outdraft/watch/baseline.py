"""What a tuning run says of servers that are watched now: its costs, and what it recommended."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from outdraft.errors import OptionError
from outdraft.report.write import RESULTS, read_results
from outdraft.tune.answer import recommended
from outdraft.tune.files import serving_of
from outdraft.watch.acting import Known
from outdraft.watch.benefit.costs import Costs


@dataclass(frozen=True, slots=True)
class Baseline:
    costs: Costs | None = None
    known: Known | None = None  # what `--act` changes


def read_baseline(folder: Path | None) -> Baseline:
    """OptionError where the folder has no results, or they say nothing of costs."""
    if folder is None:
        return Baseline()
    results = read_results(folder / RESULTS)
    costs = Costs.from_results(results)
    if costs is None:
        raise OptionError(
            f"--baseline {folder}: tune measured no arm there from which costs follow; give "
            "another folder"
        )
    return Baseline(costs, Known(recommended(results), partial(serving_of, results)))
