from __future__ import annotations

import json
from dataclasses import replace

import pytest

from outdraft.server.admin import limits_of
from outdraft.server.protocol import DraftLimits
from outdraft.speculation import Speculation
from outdraft.watch.actions import (
    Deed,
    Deeds,
    DeedState,
    Passing,
    Speed,
    judged,
    next_deed,
)
from outdraft.watch.findings import Action, Advice, Benefit, Source
from outdraft.watch.limits import ServerLimits, loads_of

DWELL_S = 600.0


def advice(action: Action = Action.TURN_OFF, replica: str = "a", **more: object) -> Advice:
    return replace(Advice(action, replica, 0.0, "it loses"), **more)  # type: ignore[arg-type]


def benefit(estimate: float, running: float | None = 4.0, part: str = "") -> Benefit:
    low, high = estimate - 0.05, estimate + 0.05
    return Benefit(Source.CANARY, estimate, low, high, 0.0, 1.0, "x", running, part)


def deed_of(deeds: Deeds, wanted: Advice, now: float, most: int = 6) -> Deed | None:
    return next_deed(deeds, wanted, now, speed=None, most_per_hour=most)


def test_an_advice_is_followed_once() -> None:
    deed = deed_of(Deeds(), advice(), 1.0)
    assert deed is not None
    assert (deed.words, deed.state) == ("TURN OFF", DeedState.ASKED)
    assert deed_of(Deeds(), advice(Action.KEEP), 1.0) is None
    for state in (DeedState.ASKED, DeedState.DONE, DeedState.HELPED, DeedState.NOT_KNOWN):
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
    ("after", "state", "at_last"),
    [
        (Speed(0.010, 0.0002, 4.0), DeedState.HELPED, DeedState.HELPED),
        (Speed(0.030, 0.0002, 4.0), DeedState.TAKEN_BACK, DeedState.TAKEN_BACK),
        (Speed(0.020, 0.0010, 4.0), DeedState.DONE, DeedState.TAKEN_BACK),  # looked at again
        (Speed(0.010, 0.0002, 40.0), DeedState.DONE, DeedState.NOT_KNOWN),  # another load
        (Speed(0.010, 0.0002, 5.5), DeedState.DONE, DeedState.NOT_KNOWN),
        (Speed(0.030, 0.0002, 5.5), DeedState.DONE, DeedState.NOT_KNOWN),
        (Speed(0.010, 0.0002, 2.5), DeedState.DONE, DeedState.NOT_KNOWN),
        (None, DeedState.DONE, DeedState.NOT_KNOWN),
    ],
)
def test_whether_it_helped_is_seen_in_the_speed_of_texts(
    after: Speed | None, state: DeedState, at_last: DeedState
) -> None:
    deed = Deed("a", Action.TURN_OFF, None, "", 0.0, DeedState.DONE, Speed(0.02, 0.0005, 4.0))
    assert judged(deed, after, None, DWELL_S - 1, DWELL_S)[0] is DeedState.DONE
    assert judged(deed, after, None, DWELL_S, DWELL_S)[0] is state
    late = judged(deed, after, None, 3 * DWELL_S, DWELL_S)
    assert late[0] is at_last
    assert late[1]


def test_or_in_the_benefit_where_speculation_goes_on() -> None:
    deed = Deed("a", Action.LOWER_K, 2, "", 0.0, DeedState.DONE, None, benefit(1.1))
    assert judged(deed, None, benefit(1.4), DWELL_S, DWELL_S)[0] is DeedState.HELPED
    assert judged(deed, None, benefit(0.8), DWELL_S, DWELL_S)[0] is DeedState.TAKEN_BACK
    assert judged(deed, None, benefit(1.12), DWELL_S, DWELL_S)[0] is DeedState.DONE
    assert judged(deed, None, benefit(1.12), 3 * DWELL_S, DWELL_S)[0] is DeedState.TAKEN_BACK


@pytest.mark.parametrize("running", [2.5, 5.5, None])
@pytest.mark.parametrize("estimate", [0.8, 1.4])
def test_the_benefit_of_another_load_says_nothing(estimate: float, running: float | None) -> None:
    deed = Deed("a", Action.LOWER_K, 2, "", 0.0, DeedState.DONE, None, benefit(1.1))
    after = benefit(estimate, running)
    assert judged(deed, None, after, DWELL_S, DWELL_S)[0] is DeedState.DONE
    assert judged(deed, None, after, 3 * DWELL_S, DWELL_S)[0] is DeedState.NOT_KNOWN


def test_a_part_is_judged_by_that_part() -> None:
    part = "9-16 at a time"
    deed = Deed(
        "a", Action.TURN_OFF_FOR, None, part, 0.0, DeedState.DONE,
        Speed(0.02, 0.0005, 4.0), benefit(0.8, 12.0, part),
    )  # fmt: skip
    late = 3 * DWELL_S

    def state(after: Benefit | None, now: float = late, seconds: float = 0.02) -> DeedState:
        return judged(deed, Speed(seconds, 0.001, 4.0), after, now, DWELL_S)[0]

    assert state(benefit(1.0, 12.0, part), DWELL_S) is DeedState.HELPED
    assert state(benefit(0.8, 12.0, part)) is DeedState.TAKEN_BACK
    for other in (None, benefit(0.8, 12.0, "5-8 at a time"), benefit(0.8, 12.0)):
        assert state(other, DWELL_S) is DeedState.DONE
        assert state(other) is DeedState.NOT_KNOWN  # all texts together are as fast as before
        assert state(other, seconds=0.03) is DeedState.TAKEN_BACK
    deed = replace(deed, benefit=benefit(1.1))
    assert state(benefit(1.1)) is DeedState.NOT_KNOWN


def test_it_counts_from_when_it_was_done() -> None:
    deed = Deed("a", Action.TURN_OFF, None, "", 100.0, speed=Speed(0.02, 0.0005, 4.0))
    done = deed.ended("", 400.0)
    assert (done.state, done.at) == (DeedState.DONE, 400.0)
    better = Speed(0.01, 0.0002, 4.0)
    assert judged(done, better, None, 100.0 + DWELL_S, DWELL_S)[0] is DeedState.DONE
    assert judged(done, better, None, 400.0 + DWELL_S, DWELL_S)[0] is DeedState.HELPED


def test_what_failed_is_tried_again_in_minutes_where_the_problem_passes() -> None:
    deed = Deed("a", Action.TURN_OFF, None, "", 0.0, limits=ServerLimits(((1, 3),)))
    asked = Deeds().with_deed(deed)
    failed = deed.ended("http 401", 10.0)
    assert failed.state is DeedState.FAILED
    deeds = asked.ended(failed, 10.0)
    assert deed_of(deeds, advice(), 80_000.0) is None
    assert deed_of(deeds, advice(), 10.0 + 24 * 3600) is not None
    deeds = asked.ended(deed.ended(Passing("no answer"), 10.0), 10.0)
    assert deed_of(deeds, advice(), 200.0) is None
    again = deed_of(Deeds.from_json(deeds.to_json()), advice(), 700.0)
    assert again is not None
    assert again.limits == ServerLimits(((1, 3),))  # the server may have been told all the same


def test_taking_back_is_tried_until_it_works() -> None:
    deed = Deed("a", Action.TURN_OFF, None, "", 0.0, DeedState.TAKEN_BACK)
    now, pauses = 0.0, []
    for _ in range(12):
        deed = deed.ended("http 500", now)
        assert deed.state is DeedState.TAKEN_BACK
        assert deed.again_at is not None
        pauses.append(deed.again_at - now)
        now = deed.again_at
    assert pauses[:4] == [30.0, 60.0, 120.0, 240.0]
    assert pauses[-1] == 3600.0
    assert deed.ended("", now).state is DeedState.BACK
    deeds = Deeds().ended(deed, now)
    assert Deeds.from_json(deeds.to_json()) == deeds
    assert deed_of(deeds.with_deed(deed.ended("", now)), advice(), now + 80_000.0) is None


def test_noting_a_deed_makes_it_no_second_one() -> None:
    deed = Deed("a", Action.TURN_OFF, None, "", 5.0)
    deeds = Deeds().with_deed(deed).with_deed(replace(deed, limits=ServerLimits()))
    assert deeds.times == (5.0,)
    assert deeds.newest["a"].limits == ServerLimits()


def test_a_deed_of_an_earlier_version_is_read() -> None:
    deed = Deed("a", Action.TURN_OFF, None, "", 0.0, DeedState.DONE)
    written = {
        key: value
        for key, value in Deeds().with_deed(deed).to_json()["newest"]["a"].items()
        if key not in ("limits", "on_limits", "tries", "again_at")
    }
    assert Deed.from_json(written) == deed
    limited = replace(
        deed, limits=ServerLimits(((1, 5), (9, 2)), canary_share=0.02), on_limits=ServerLimits()
    )
    written = json.loads(json.dumps(Deeds().with_deed(limited).to_json()))["newest"]["a"]
    assert Deed.from_json(written) == limited
    written["limits"] = [[1, 5], [9, 2]]
    assert Deed.from_json(written) == replace(limited, limits=ServerLimits(((1, 5), (9, 2))))


def limits_body(deed: Deed) -> dict[str, object] | None:
    wanted = deed.wanted_limits()
    return None if wanted is None else wanted.body()


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
    hot = replace(part, part="temperature 1+, temperature 0.7-1")
    assert limits_body(hot) == {"max_k": None, "temperatures": ["1+", "0.7-1"]}
    for other in ("temperature 2+", "temperature 1+, 9-16 at a time", "chats"):
        assert limits_body(replace(part, part=other)) is None
    no_k = replace(off, action=Action.LOWER_K)
    assert limits_body(no_k) is None
    assert loads_of("5-8 at a time, 1 at a time") == ((1, 1), (5, 8))


def test_our_server_takes_what_it_is_told() -> None:
    off = Deed("a", Action.TURN_OFF, None, "", 0.0)
    part = replace(off, action=Action.TURN_OFF_FOR, part="1 at a time, 9-16 at a time")
    for deed, lengths in (
        (off, [0, 0, 0, 0, 0]),
        (replace(off, action=Action.LOWER_K, k=2), [2, 2, 2, 2, 2]),
        (part, [0, 5, 5, 0, 5]),
        (replace(part, part="temperature 1+"), [5, 5, 5, 5, 5]),
    ):
        limits = limits_of(DraftLimits.model_validate(limits_body(deed)), Speculation("ngram"))
        ks = [next((min(5, k) for first, last, k in limits if first <= n <= last), 5)
              for n in (1, 2, 8, 9, 17)]  # fmt: skip
        assert ks == lengths
    assert limits_of(DraftLimits.model_validate({"max_k": None}), Speculation("ngram")) == ()


def test_limits_that_are_there_are_never_lifted() -> None:
    before = ServerLimits(((1, 5), (9, 2)))
    off = Deed("a", Action.TURN_OFF, None, "", 0.0, limits=before)
    assert limits_body(off) == {"max_k": 0}
    lower = replace(off, action=Action.LOWER_K, k=3)
    assert limits_body(lower) == {"schedule": [[1, 3], [9, 2]]}
    assert limits_body(replace(lower, limits=ServerLimits(((1, 2),)))) == {"max_k": 2}
    part = replace(off, action=Action.TURN_OFF_FOR, part="5-12 at a time")
    assert limits_body(part) == {"schedule": [[1, 5], [5, 0], [13, 2]]}
    assert limits_body(replace(part, limits=ServerLimits())) == {
        "schedule": [[1, 64], [5, 0], [13, 64]]
    }
    hot = replace(part, part="temperature 1+", limits=replace(before, temperatures=("0.7-1",)))
    assert limits_body(hot) == {
        "schedule": [[1, 5], [9, 2]], "temperatures": ["0.7-1", "1+"],
    }  # fmt: skip
    assert limits_body(replace(hot, action=Action.TURN_OFF)) == {
        "max_k": 0, "temperatures": ["0.7-1"],
    }  # fmt: skip
    assert before.body() == {"schedule": [[1, 5], [9, 2]]}
    assert ServerLimits(((1, 3),)).body() == {"max_k": 3}
    assert ServerLimits().body() == {"max_k": None}


@pytest.mark.parametrize(("share", "while_off"), [(0.0, 0.01), (0.005, 0.01), (0.02, 0.02)])
def test_what_is_turned_off_is_still_tried(share: float, while_off: float) -> None:
    """As often as before or more, and afterwards as often as before."""
    off = Deed("a", Action.TURN_OFF, None, "", 0.0).with_limits(
        ServerLimits((), canary_share=share)
    )
    assert limits_body(off) == {"max_k": 0, "canary_share": while_off}
    part = replace(off, action=Action.TURN_OFF_FOR, part="9-16 at a time")
    assert limits_body(part) == {
        "schedule": [[1, 64], [9, 0], [17, 64]], "canary_share": while_off,
    }  # fmt: skip
    lower = replace(off, action=Action.LOWER_K, k=2)
    assert limits_body(lower) == {"max_k": 2, "canary_share": share}
    on = replace(off, action=Action.TURN_ON)
    assert limits_body(on) == {"max_k": None, "canary_share": share}
