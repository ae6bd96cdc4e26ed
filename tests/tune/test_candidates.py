from __future__ import annotations

from outdraft.tune.candidates import spread_ks, thinned


def test_draft_lengths_that_are_not_tried_are_told() -> None:
    ks = tuple(range(2, 9))
    tried = spread_ks(ks, 4)
    assert tried == (2, 4, 6, 8)
    (left,) = thinned(ks, tried)
    assert left.name == "k=3, 5, 7"
    assert "only 2, 4, 6, 8 are tried" in left.reason
    assert thinned(tried, spread_ks(tried, 4)) == []
