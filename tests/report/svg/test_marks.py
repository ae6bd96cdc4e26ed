from __future__ import annotations

from xml.etree import ElementTree

import pytest

from outdraft.report.svg import marks


def test_every_series_differs_in_colour_and_shape() -> None:
    drawn = [marks.marker(index, 5, 5, "dot") for index in range(6)]
    assert len(set(drawn)) == 6
    assert len({marks.series_class(index) for index in range(6)}) == 6


@pytest.mark.parametrize("index", range(7))
def test_a_marker_has_a_title(index: int) -> None:
    shape = ElementTree.fromstring(marks.marker(index, 1, 2, "dot", "<a> 1.5"))
    assert shape.findtext("title") == "<a> 1.5"


def test_a_path() -> None:
    assert (
        marks.path([(1, 2), (3.456, 4)], "curve") == '<path d="M1 2 L3.46 4" class="curve"></path>'
    )


def test_shortened() -> None:
    assert marks.shortened("summarization", 14) == "summarization"
    assert marks.shortened("a category of a long name", 14) == "a category of…"


def test_a_drawing_says_what_it_is() -> None:
    drawn = ElementTree.fromstring(marks.drawing(10, 20, 'a "label"', marks.text(1, 2, "<")))
    assert drawn.get("role") == "img"
    assert drawn.get("aria-label") == 'a "label"'
    assert drawn.get("viewBox") == "0 0 10 20"
    assert drawn.findtext("text") == "<"
