"""Loads of which less ran than they name."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from outdraft.tune.arm import Load
from outdraft.tune.journal import Block, Journal
from outdraft.tune.short_loads import short_load_notes
from outdraft.tune.texts import texts_part

ONE, FOUR = Load(concurrency=1), Load(concurrency=4)


def notes(**means: list[float]) -> list[str]:
    """Of off's blocks under the load of four, and those that ask for the texts of one again."""
    parts = {"four": FOUR.name, "texts": texts_part(ONE).name}
    blocks = [
        Block(parts[part], "off", number, 1.0, (), running=mean)
        for part, own in means.items()
        for number, mean in enumerate(own)
    ]
    by_place = {(each.load, each.arm, each.block): each for each in blocks}
    return short_load_notes((ONE, FOUR), cast(Journal, SimpleNamespace(blocks=by_place)))


def test_requests_that_are_asked_again_for_their_texts_are_of_another_load() -> None:
    assert texts_part(ONE).name.startswith(f"{FOUR.name},")
    assert notes(four=[4.0, 4.0], texts=[2.0, 2.1, 2.2, 2.3]) == []
    [note] = notes(four=[2.0, 2.1], texts=[4.0] * 8)
    assert note.startswith("concurrency 4: fewer requests were running")
