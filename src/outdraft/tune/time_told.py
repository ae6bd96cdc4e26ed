"""What is said of the time before a run and while it goes on. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from outdraft.durations import format_duration
from outdraft.tune.journal import Journal
from outdraft.tune.needs import Needs, measured_pace, time_words
from outdraft.tune.rules import SearchSettings

_WORSE = 1.3  # times what was told: worth another word


@dataclass(frozen=True, slots=True)
class TimeTold:
    """A state is a value: `first` and `again` return words, which may be empty, and the next."""

    settings: SearchSettings
    journal: Journal
    least_s: float = 0.0  # that were told last
    num_looked: int = 0  # blocks and starts that were there when it was last looked at

    def first(self) -> tuple[str, TimeTold]:
        """Before the start: a guess, or by what a run that is continued has measured."""
        needs = self._needs()
        if not needs.least_s:
            return "", self
        return time_words(needs), replace(self, least_s=needs.least_s)

    def again(self) -> tuple[str, TimeTold]:
        """Once it turns out that the time will not do: after the first start, and the first block
        of a part."""
        num_looked = len(self.journal.starts[:1]) + len(
            {each.load for each in self.journal.blocks.values()}
        )
        if num_looked == self.num_looked:
            return "", self
        looked, needs = replace(self, num_looked=num_looked), self._needs()
        does_fit = needs.least_s <= self.settings.budget_s
        if does_fit or needs.least_s < _WORSE * self.least_s:
            return "", looked
        return time_words(needs, " at this pace"), replace(looked, least_s=needs.least_s)

    def _needs(self) -> Needs:
        return Needs(self.settings, measured_pace(self.settings, self.journal))


def resumed_words(journal: Journal, folder: Path, budget_s: float) -> str:
    """E.g. "going on with 14 blocks from 2026-07-01 12:34 UTC in out; 2m of 9m40s are spent"."""
    since = ""
    if journal.started_at:
        since = f" from {datetime.fromisoformat(journal.started_at):%Y-%m-%d %H:%M} UTC"
    count = len(journal.blocks)
    blocks = "1 block" if count == 1 else f"{count} blocks"
    spent = f"{format_duration(journal.elapsed_s())} of {format_duration(budget_s)} are spent"
    return f"going on with {blocks}{since} in {folder}; {spent}"
