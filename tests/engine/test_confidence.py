"""Grades of how sure a draft is."""

from __future__ import annotations

import math

import pytest

from outdraft.engine.confidence import GRADES, grade_of
from outdraft.engine.native.library import library


def test_grades_rise_with_the_margin() -> None:
    margins = [0.0, 0.1, 0.25, 0.3, 0.7, 1.5, 2.5, 4.0, 6.0, 7.0, math.inf]
    grades = [grade_of(each) for each in margins]
    assert grades == sorted(grades)
    assert (grades[0], grades[-1]) == (0, GRADES - 1)
    assert set(grades) == set(range(GRADES))


def test_the_library_has_as_many() -> None:
    if library() is None:
        pytest.skip("the library is not compiled here")
    from outdraft.engine.native.rounds import CKind

    assert len(CKind().shares[0][0]) == GRADES
