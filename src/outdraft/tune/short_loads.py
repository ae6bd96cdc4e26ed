"""Loads of which less ran than they name. Pure."""

from collections.abc import Iterable

from outdraft.measure.running import RunningRequests, mean_of_blocks
from outdraft.tune.arm import Load
from outdraft.tune.journal import Block, Journal
from outdraft.tune.texts import texts_part


def running_of(blocks: Iterable[Block]) -> RunningRequests | None:
    """Requests that ran on average in these blocks; None where nobody looked, as in journals of
    before."""
    return mean_of_blocks([each.running for each in blocks if each.running is not None])


def short_load_notes(loads: Iterable[Load], journal: Journal) -> list[str]:
    """A note on each load that was not applied as it is named, with the arms of which that is
    clear; in all parts of the search."""
    loads, notes = tuple(loads), []
    asked_again = {texts_part(load).name for load in loads}  # beside the texts of another load
    for load in loads:
        of_arms: dict[str, list[Block]] = {}
        for each in journal.blocks.values():
            if each.load in asked_again:
                continue
            if each.load == load.name or each.load.startswith((f"{load.name},", f"{load.name} on")):
                of_arms.setdefault(each.arm, []).append(each)
        found = {arm: running_of(blocks) for arm, blocks in of_arms.items()}
        wanted = load.concurrency or 0
        short = [
            f"{arm} {each}" for arm, each in found.items() if each and each.is_short_of(wanted)
        ]
        if short:
            notes.append(
                f"{load.name}: fewer requests were running on average, as the engine counts: "
                f"{', '.join(short)}; it may have a limit of its own, or the client is too slow"
            )
    return notes
