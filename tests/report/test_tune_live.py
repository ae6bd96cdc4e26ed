from __future__ import annotations

from outdraft.report.tune_live import arms_shown, state_of
from outdraft.speculation import OFF, Speculation
from outdraft.tune.arm import Load
from outdraft.tune.race import Standing
from outdraft.tune.search import RACE, Progress

TWO, THREE, FOUR = (Speculation("ngram", k=k) for k in (2, 3, 4))


def test_every_state_is_shown() -> None:
    standing = Standing(
        predicted={"ngram k=3": 1.2, "ngram k=4": 1.3, "ngram k=5": 1.1},
        finalists=(TWO, THREE, FOUR),
        alive=(THREE, FOUR),
        dropped={"ngram k=2": "far behind"},
        failed={"ngram k=8": "ran out of memory"},
        best=FOUR,
        next_arms=(OFF, THREE, FOUR),
        next_block=4,
    )
    progress = Progress(RACE, Load(concurrency=1), standing, THREE, 10.0, 60.0)
    assert {name: state_of(progress, name) for name in arms_shown(progress)} == {
        "off": "baseline",
        "ngram k=2": "dropped",
        "ngram k=3": "measuring block 5",
        "ngram k=4": "leads",
        "ngram k=8": "failed",
        "ngram k=5": "",
    }
