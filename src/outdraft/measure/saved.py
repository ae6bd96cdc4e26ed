"""Two runs that were saved one by one, put side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from outdraft.errors import OptionError
from outdraft.records import Record


def in_blocks(
    baseline: Sequence[Record], candidate: Sequence[Record], size: int
) -> tuple[list[Record], list[Record]]:
    """Both with the same block and place for the same request, cut into blocks of `size`.

    Blocks of one run are near in time, so they stand in for blocks that were interleaved.
    """
    one = _keyed(baseline)
    other = _keyed(candidate)
    shared = [key for key in one if key in other]
    if not shared:
        raise OptionError("the two runs have no request in common; use the same prompts and seed")
    first, second = [], []
    for place, key in enumerate(shared):
        block, index = divmod(place, size)
        first.append(replace(one[key], block=block, index=index))
        second.append(replace(other[key], block=block, index=index))
    return first, second


def _keyed(records: Sequence[Record]) -> dict[tuple[str, float, int], Record]:
    """By prompt, temperature and how often it came before; in the order of sending."""
    seen: dict[tuple[str, float], int] = {}
    keyed = {}
    for record in records:
        if not record.is_warmup:
            key = (record.prompt_id, record.temperature)
            keyed[(*key, seen.get(key, 0))] = record
            seen[key] = seen.get(key, 0) + 1
    return keyed
