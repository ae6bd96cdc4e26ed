"""What a search had no time for, and the budget that would have been enough. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from outdraft.durations import format_duration
from outdraft.tune.arm import by_proposer, name_of
from outdraft.tune.final import num_final_blocks
from outdraft.tune.journal import Journal
from outdraft.tune.needs import Needs, measured_pace, round_up
from outdraft.tune.race import Standing
from outdraft.tune.rules import SearchSettings

_AT_LEAST = 1.5  # times the budget that did not do


@dataclass(frozen=True, slots=True)
class OutOfTime:
    """Nothing was left out where `enough_s` is None."""

    enough_s: float | None = None
    notes: tuple[str, ...] = ()


def find_out_of_time(
    settings: SearchSettings,
    standings: Mapping[str, Standing],  # by the names of the loads
    unfinished: Collection[str],  # loads whose answer is not clear for lack of time
    journal: Journal,
) -> OutOfTime:
    notes = [
        f"{load}: no time was left to try {', '.join(names)}"
        for load, standing in standings.items()
        if standing.best is not None and (names := _untried(settings, load, standing, journal))
    ]
    if not unfinished and not notes:
        return OutOfTime()
    num_final = {
        load: num_final_blocks(None if each.best is None else each.measured.get(name_of(each.best)))
        for load, each in standings.items()
        if load in unfinished
    }
    needs, least_s = (
        Needs(settings, measured_pace(settings, journal)),
        _AT_LEAST * settings.budget_s,
    )
    enough_s = round_up(max(needs.enough_s(num_final), least_s))
    words = f"--budget {format_duration(enough_s)} would have been enough"
    judged_s = round_up(max(needs.enough_s({}), least_s))
    if unfinished and judged_s < enough_s:
        words += f" ({format_duration(judged_s)} to judge every load, with wider intervals)"
    num_blocks = len(journal.blocks)
    on = f"run the same again with it, and it goes on with the {num_blocks} blocks that there are"
    return OutOfTime(enough_s, (*notes, f"{words}: {on}" if num_blocks else words))


def _untried(
    settings: SearchSettings, load: str, standing: Standing, journal: Journal
) -> list[str]:
    """Proposers without a block under the load, though nothing is wrong with them."""
    return [
        name
        for name, members in by_proposer(settings.arms).items()
        if not any(journal.of(load, name_of(arm)) for arm in members)
        and not standing.failed.keys() & set(map(name_of, members))
    ]
