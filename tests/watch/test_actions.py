from __future__ import annotations

from dataclasses import replace

import pytest

from outdraft.server.admin import limits_of
from outdraft.server.protocol import DraftLimits
from outdraft.speculation import Speculation
from outdraft.watch.actions import (
    Deed,
    Deeds,
    DeedState,
    Speed,
    judged,
    limits_body,
    loads_of,
    next_deed,
)
from outdraft.watch.findings import Action, Advice, Benefit, Source

DWELL_S = 600.0


def advice(action: Action = Action.TURN_OFF, replica: str = "a", **more: object) -> Advice:
    return replace(Advice(action, replica, 0.0, "it loses"), **more)  # type: ignore[arg-type]


def benefit(estimate: float) -> Benefit:
    return Benefit(Source.CANARY, estimate, estimate - 0.05, estimate + 0.05, 0.0, 1.0, "x")


def deed_of(deeds: Deeds, wanted: Advice, now: float, most: int = 6) -> Deed | None:
    return next_deed(deeds, wanted, now, speed=None, most_per_hour=most)


def test_an_advice_is_followed_once() -> None:
    deed = deed_of(Deeds(), advice(), 1.0)
    assert deed is not None
    assert (deed.words, deed.state) == ("TURN OFF", DeedState.ASKED)
    assert deed_of(Deeds(), advice(Action.KEEP), 1.0) is None
    for state in (DeedState.ASKED, DeedState.DONE, DeedState.HELPED):
        known = Deeds().with_deed(replace(deed, state=state))
        assert deed_of(known, advice(), 9999.0) is None
    helped = Deeds().with_deed(replace(deed, state=DeedState.HELPED))
    assert deed_of(helped, advice(Action.LOWER_K, k=2), 9999.0) is not None


def test_what_was_taken_back_is_not_done_again_for_a_day() -> None:
    deed = deed_of(Deeds(), advice(), 1.0)
    assert deed is not None
    taken_back = replace(deed, state=DeedState.TAKEN_BACK)
    deeds = Deeds().with_deed(deed).ended(taken_back, 700.0)
    assert deed_of(deeds, advice(Action.LOWER_K, k=1), 800.0) is None  # it is still being done
    deeds = deeds.with_deed(replace(deed, state=DeedState.BACK))
    assert deed_of(deeds, advice(), 80_000.0) is None
    assert deed_of(deeds, advice(), 700.0 + 24 * 3600) is not None
    assert deed_of(deeds, advice(Action.LOWER_K, k=1), 800.0) is not None
    assert Deeds.from_json(deeds.to_json()) == deeds


def test_only_so_many_in_an_hour() -> None:
    deeds = Deeds()
    for n in range(3):
        deed = deed_of(deeds, advice(replica=f"r{n}"), 10.0 * n, most=3)
        assert deed is not None
        deeds = deeds.with_deed(deed)
    assert deed_of(deeds, advice(replica="r3"), 40.0, most=3) is None
    assert deed_of(deeds, advice(replica="r3"), 3610.0, most=3) is not None


@pytest.mark.parametrize(
    ("after", "state"),
    [
        (Speed(0.010, 0.0002, 4.0), DeedState.HELPED),
        (Speed(0.030, 0.0002, 4.0), DeedState.TAKEN_BACK),
        (Speed(0.020, 0.0010, 4.0), DeedState.DONE),  # unclear: looked at again
        (Speed(0.010, 0.0002, 40.0), DeedState.DONE),  # another load
        (None, DeedState.DONE),
    ],
)
def test_whether_it_helped_is_seen_in_the_speed_of_texts(
    after: Speed | None, state: DeedState
) -> None:
    deed = Deed("a", Action.TURN_OFF, None, "", 0.0, DeedState.DONE, Speed(0.02, 0.0005, 4.0))
    assert judged(deed, after, None, DWELL_S - 1, DWELL_S)[0] is DeedState.DONE
    assert judged(deed, after, None, DWELL_S, DWELL_S)[0] is state
    late = judged(deed, after, None, 3 * DWELL_S, DWELL_S)
    expected = DeedState.TAKEN_BACK if state is DeedState.DONE else state
    assert late[0] is expected
    assert late[1]


def test_or_in_the_benefit_where_speculation_goes_on() -> None:
    deed = Deed("a", Action.LOWER_K, 2, "", 0.0, DeedState.DONE, None, benefit(1.1))
    assert judged(deed, None, benefit(1.4), DWELL_S, DWELL_S)[0] is DeedState.HELPED
    assert judged(deed, None, benefit(0.8), DWELL_S, DWELL_S)[0] is DeedState.TAKEN_BACK
    assert judged(deed, None, benefit(1.12), DWELL_S, DWELL_S)[0] is DeedState.DONE


def test_what_our_server_is_told() -> None:
    off = Deed("a", Action.TURN_OFF, None, "", 0.0)
    assert limits_body(off) == {"max_k": 0}
    assert limits_body(replace(off, action=Action.LOWER_K, k=2)) == {"max_k": 2}
    part = replace(off, action=Action.TURN_OFF_FOR, part="9-16 at a time")
    assert limits_body(part) == {"schedule": [[1, 64], [9, 0], [17, 64]]}
    parts = replace(part, part="17-32 at a time, 9-16 at a time")
    assert limits_body(parts) == {"schedule": [[1, 64], [9, 0], [17, 0], [33, 64]]}
    first = replace(part, part="1 at a time")
    assert limits_body(first) == {"schedule": [[1, 0], [2, 64]]}
    assert limits_body(replace(part, part="temperature 1+")) is None
    assert loads_of("5-8 at a time, 1 at a time") == ((1, 1), (5, 8))


def test_our_server_takes_what_it_is_told() -> None:
    off = Deed("a", Action.TURN_OFF, None, "", 0.0)
    part = replace(off, action=Action.TURN_OFF_FOR, part="1 at a time, 9-16 at a time")
    for deed, lengths in (
        (off, [0, 0, 0, 0, 0]),
        (replace(off, action=Action.LOWER_K, k=2), [2, 2, 2, 2, 2]),
        (part, [0, 5, 5, 0, 5]),
    ):
        limits = limits_of(DraftLimits.model_validate(limits_body(deed)), Speculation("ngram"))
        ks = [next(min(5, k) for first, last, k in limits if first <= n <= last)
              for n in (1, 2, 8, 9, 17)]  # fmt: skip
        assert ks == lengths
    assert limits_of(DraftLimits.model_validate({"max_k": None}), Speculation("ngram")) == ()
