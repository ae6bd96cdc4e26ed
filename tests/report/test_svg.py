from __future__ import annotations

from xml.etree import ElementTree

import pytest

from outdraft.report import svg


def test_every_series_differs_in_colour_and_shape() -> None:
    drawn = [svg.marker(index, 5, 5, "dot") for index in range(6)]
    assert len(set(drawn)) == 6
    assert len({svg.series_class(index) for index in range(6)}) == 6


@pytest.mark.parametrize("index", range(7))
def test_a_marker_has_a_title(index: int) -> None:
    shape = ElementTree.fromstring(svg.marker(index, 1, 2, "dot", "<a> 1.5"))
    assert shape.findtext("title") == "<a> 1.5"


def test_a_path() -> None:
    assert svg.path([(1, 2), (3.456, 4)], "curve") == '<path d="M1 2 L3.46 4" class="curve"></path>'


def test_abbreviated() -> None:
    assert svg.abbreviated("summarization", 14) == "summarization"
    assert svg.abbreviated("a category of a long name", 14) == "a category of…"


def test_a_drawing_says_what_it_is() -> None:
    drawn = ElementTree.fromstring(svg.drawing(10, 20, 'a "label"', svg.text(1, 2, "<")))
    assert drawn.get("role") == "img"
    assert drawn.get("aria-label") == 'a "label"'
    assert drawn.get("viewBox") == "0 0 10 20"
    assert drawn.findtext("text") == "<"
