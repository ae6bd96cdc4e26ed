"""How sure a draft is of a token that it drew: in eight grades, by how far the token's score (its
logit, and noise where there is some) is above the second best. What a grade is worth is learned."""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

_MARGINS = (0.25, 0.5, 1.0, 2.0, 3.0, 4.5, 6.5)  # up to each; the last grade is above all
GRADES = len(_MARGINS) + 1


def grade_of(margin: float) -> int:
    return bisect_left(_MARGINS, margin)


class Trust(NamedTuple):
    """What a text's draft is worth, and where it should stop."""

    chances: tuple[float, ...]  # of a token to be accepted, by its grade
    floor: float  # no token more where the chance of all so far together is lower
