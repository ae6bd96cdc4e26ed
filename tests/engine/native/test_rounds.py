"""What is believed of acceptance follows what was planted; costs of a step are those that were
told."""

from __future__ import annotations

from ctypes import addressof, byref, c_uint8, sizeof

import numpy as np
import pytest

from outdraft.engine.native.library import library
from outdraft.engine.native.rounds import (
    BANDS,
    POSITIONS,
    CController,
    CKind,
    CRound,
    CText,
    grown,
    rounds_library,
)
from outdraft.step_costs import ProposerCosts, RoundCosts

if library() is None:
    pytest.skip("the library is not compiled here", allow_module_level=True)

FIRST = 0.4


class Watched:
    """Each text is watched for so many rounds, at its rate."""

    def __init__(self, rates: list[float], rounds: int, k: int = 4) -> None:
        chance, self.lib = np.random.default_rng(0), rounds_library()
        self.kinds, self.texts = (CKind * 1)(), (CText * (len(rates) + 1))()
        self.lib.kind_begin(byref(self.kinds[0]), FIRST, 0)
        for text in self.texts:
            self.lib.text_begin(byref(text), 0)
        for now in range(1, rounds + 1):
            accepted = [min(int(chance.geometric(1 - each)) - 1, k) for each in rates]
            seen = [CRound(None, text, 0, 0, k, each, 0) for text, each in enumerate(accepted)]
            own = (CRound * len(seen))(*seen)
            self.lib.learn_rounds(self.kinds, 1, self.texts, own, len(seen), now)

    def gains(self, text: int, band: int = 0) -> list[float]:
        gains = np.zeros(8)
        self.texts[text].band = band
        where = byref(self.kinds[0]), byref(self.texts[text])
        self.lib.expect_gains(*where, 0, None, len(gains), gains.ctypes.data)
        return list(gains.tolist())


def test_gains_fall_with_the_position() -> None:
    watched = Watched([0.9, 0.2, 0.6], 5)
    for text in range(3):
        gains = watched.gains(text)
        assert gains == sorted(gains, reverse=True)
        assert all(0 < each < 1 for each in gains)


def test_texts_are_told_apart() -> None:
    watched = Watched([0.9, 0.1] * 8, 30)
    assert watched.gains(0)[0] > 0.75
    assert watched.gains(1)[0] < 0.3


@pytest.mark.parametrize("rate", [0.2, 0.8])
def test_a_new_text_is_expected_to_be_as_the_fleet(rate: float) -> None:
    assert Watched([rate] * 16, 16).gains(16)[0] == pytest.approx(rate, abs=0.08)


def test_bands_differ_and_unknown_ones_follow_the_others() -> None:
    watched = Watched([0.1] * 16, 16)
    assert watched.gains(16)[0] < 0.2
    assert watched.gains(16, band=2)[0] < 0.45  # nothing was seen there: 0.6 at first


def test_a_text_that_begins_is_as_the_fleet() -> None:
    watched = Watched([0.9, 0.05], 30)
    watched.lib.text_begin(byref(watched.texts[1]), 0)
    assert watched.gains(1) == watched.gains(2)


def test_later_rounds_of_a_text_are_not_counted_for_the_fleet() -> None:
    """Who is kept wins: after 16 rounds the fleet has learned of it what it will."""
    early, late = Watched([0.9], 16), Watched([0.9], 60)
    assert early.kinds[0].tried[0][0] == late.kinds[0].tried[0][0] == 16


def test_what_was_seen_long_ago_counts_half() -> None:
    watched = Watched([0.5] * 40, 16)
    assert watched.kinds[0].tried[0][0] <= 300


def test_the_first_hazard_is_that_of_the_coldest_band() -> None:
    kind = Watched([], 0).kinds[0]
    assert (len(kind.hazards), len(kind.hazards[0])) == (BANDS, POSITIONS)
    assert kind.hazards[0][0] == pytest.approx(FIRST)
    assert kind.hazards[4][0] == pytest.approx(1.5 * FIRST)


def test_steps_cost_what_was_told() -> None:
    told = RoundCosts(
        {1: 0.010, 8: 0.012, 64: 0.040}, 128, 0.0002, 0.000001, 0.0000003,
        {"head": ProposerCosts()},
    )  # fmt: skip
    base = np.array([told.verification(tokens, 1, 128) for tokens in range(1, 65)])
    factors = np.full(64, 1.5)
    controller = CController(
        base=base.ctypes.data, factors=factors.ctypes.data, per_sequence=told.per_sequence,
        per_read=told.per_read, per_row_read=told.per_row_read, shortest=told.context,
        num=4, context=500.0,
    )  # fmt: skip
    for tokens in (4, 7, 40):
        seconds = rounds_library().step_seconds(byref(controller), tokens)
        assert seconds == pytest.approx(1.5 * told.verification(tokens, 4, 500))


def test_arrays_grow_and_keep_what_is_in_them() -> None:
    few = (CRound * 2)(CRound(None, 1), CRound(None, 2))
    assert grown(few, 2) is few
    more = grown(few, 3)
    assert len(more) == 4
    assert [each.text for each in more] == [1, 2, 0, 0]
    assert sizeof(more) == 2 * sizeof(few)


class Graded:
    """Drafts of three tokens: each grade comes as often, and is refused as often, as planted."""

    HAZARDS = (0.8, 0.7, 0.6, 0.5, 0.3, 0.2, 0.1, 0.02)

    def __init__(self, shares: list[float], rounds: int, num_texts: int = 8) -> None:
        self.chance, self.lib = np.random.default_rng(0), rounds_library()
        self.kinds, self.texts = (CKind * 1)(), (CText * (num_texts + 1))()
        self.shares = shares
        self.lib.kind_begin(byref(self.kinds[0]), FIRST, 1)
        for text in self.texts:
            self.lib.text_begin(byref(text), 0)
        for now in range(1, rounds + 1):
            drafts = [self.draft() for _ in range(num_texts)]
            for text, (grades, _) in enumerate(drafts):
                own = (c_uint8 * 3)(*grades)
                self.lib.learn_grades(byref(self.kinds[0]), byref(self.texts[text]), own, 3)
            self.lib.work_out_shares(byref(self.kinds[0]))
            arrays = [(c_uint8 * 3)(*grades) for grades, _ in drafts]
            rounds_ = (CRound * num_texts)(
                *(
                    CRound(addressof(arrays[text]), text, 0, 0, 3, accepted, 0)
                    for text, (_, accepted) in enumerate(drafts)
                )
            )
            self.lib.learn_rounds(self.kinds, 1, self.texts, rounds_, num_texts, now)

    def draft(self) -> tuple[list[int], int]:
        grades = self.chance.choice(8, 3, p=self.shares).tolist()
        right = [self.chance.random() >= self.HAZARDS[each] for each in grades]
        return grades, right.index(False) if False in right else 3

    def worth(self, value: float, price: float, text: int = -1) -> tuple[list[float], list[float]]:
        worth, taken = np.zeros(3), np.zeros(3)
        where = byref(self.kinds[0]), byref(self.texts[text])
        self.lib.expect_worth(*where, 0, 3, value, price, worth.ctypes.data, taken.ctypes.data)
        return worth.tolist(), taken.tolist()


EVEN = [0.1, 0.1, 0.15, 0.15, 0.1, 0.15, 0.15, 0.1]


def test_what_a_grade_is_worth_is_learned() -> None:
    graded = Graded(EVEN, 60)
    hazards = list(graded.kinds[0].hazards[0])[:8]
    assert hazards == pytest.approx(Graded.HAZARDS, abs=0.12)
    assert list(graded.kinds[0].shares[0][0]) == pytest.approx(EVEN, abs=0.06)
    gains, grades = np.zeros(2), (c_uint8 * 2)(7, 0)
    where = byref(graded.kinds[0]), byref(graded.texts[-1])
    graded.lib.expect_gains(*where, 0, grades, 2, gains.ctypes.data)
    sure = 1 - hazards[7]
    assert gains.tolist() == pytest.approx([sure, sure * (1 - hazards[0])])


@pytest.mark.parametrize(("value", "price"), [(1.0, 0.0), (1.0, 0.4), (2.0, 1.5), (0.5, 0.6)])
def test_a_choice_by_grades_is_worth_what_it_gives(value: float, price: float) -> None:
    """Against 20,000 drafts of which only what pays is taken."""
    graded = Graded(EVEN, 200)
    hazards = np.array(list(graded.kinds[0].hazards[0])[:8])
    shares = np.array([list(each) for each in list(graded.kinds[0].shares[0])[:3]])
    chance = np.random.default_rng(1)
    grades = np.stack([chance.choice(8, 20_000, p=own / own.sum()) for own in shares])
    chances = (1 - hazards[grades]).cumprod(0)
    worth, taken = graded.worth(value, price)
    assert worth == pytest.approx(np.maximum(value * chances - price, 0).mean(1), abs=0.01 * value)
    assert taken == pytest.approx((value * chances > price).mean(1), abs=0.06)


def test_a_text_whose_drafts_are_unsure_is_told_apart() -> None:
    graded = Graded(EVEN, 30)
    unsure = graded.texts[0]
    for _ in range(10):
        graded.lib.learn_grades(byref(graded.kinds[0]), byref(unsure), (c_uint8 * 3)(0, 1, 0), 3)
    own, usual = graded.worth(1.0, 0.4, 0), graded.worth(1.0, 0.4)
    assert own[0][0] < 0.8 * usual[0][0]


def test_nothing_that_is_dear_is_worth_anything() -> None:
    assert Graded(EVEN, 5).worth(1.0, 1.1) == ([0.0] * 3, [0.0] * 3)
