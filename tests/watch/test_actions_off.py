"""Deeds that turn something off: whether they helped, and when it is turned on again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outdraft.observe.reading import Reading
from outdraft.watch.actions import Deed, Deeds, DeedState, Speed, is_undone, judged
from outdraft.watch.findings import Action, Source
from outdraft.watch.limits import ServerLimits
from tests.watch.test_actions import DWELL_S, advice, benefit, deed_of, limits_body

ON = Action.TURN_ON
BEFORE = ServerLimits(((1, 3),), canary_share=0.0)


def helped(action: Action, part: str = "") -> Deed:
    deed = Deed("a", action, None, part, 0.0).with_limits(BEFORE)
    return replace(deed, state=DeedState.HELPED)


@pytest.mark.parametrize("part", ["", "9-16 at a time"])
def test_what_we_turned_off_is_turned_on_again(part: str) -> None:
    off = helped(Action.TURN_OFF_FOR if part else Action.TURN_OFF, part)
    deed = deed_of(Deeds().with_deed(off), advice(ON, part=part), 9999.0)
    assert deed is not None
    assert deed.words == ("TURN ON FOR 9-16 at a time" if part else "TURN ON")
    assert limits_body(deed.with_limits(ServerLimits(((1, 0),), canary_share=0.01))) == {
        "max_k": 3, "canary_share": 0.0,
    }  # fmt: skip
    on = Deeds().with_deed(replace(deed, state=DeedState.HELPED))
    assert deed_of(on, advice(ON, part=part), 99999.0) is None
    again = deed_of(on, advice(), 99999.0)
    assert again is not None
    assert again.on_limits is None  # they are read anew


def test_two_parts_are_turned_on_together() -> None:
    deeds = Deeds().with_deed(helped(Action.TURN_OFF_FOR, "9-16 at a time"))
    more = deed_of(deeds, advice(Action.TURN_OFF_FOR, part="1 at a time, 9-16 at a time"), 9.0)
    assert more is not None
    more = replace(more, state=DeedState.HELPED).with_limits(
        ServerLimits(((1, 64), (9, 0)), canary_share=0.01)
    )
    on = deed_of(deeds.with_deed(more), advice(ON, part="1 at a time"), 99.0)
    assert on is not None
    assert on.wanted_limits() == BEFORE


def test_what_others_turned_off_stays_off() -> None:
    assert deed_of(Deeds(), advice(ON), 1.0) is None
    for deed in (
        replace(helped(Action.TURN_OFF), state=DeedState.BACK),
        replace(helped(Action.TURN_OFF), state=DeedState.GONE),
        replace(helped(Action.LOWER_K), k=2),
    ):
        assert deed_of(Deeds().with_deed(deed), advice(ON), 1.0) is None


def test_turning_on_that_did_not_help_is_tried_again_after_a_day() -> None:
    deeds = Deeds().with_deed(helped(Action.TURN_OFF))
    deed = deed_of(deeds, advice(ON), 10.0)
    assert deed is not None
    back = replace(deed, state=DeedState.BACK)
    deeds = deeds.with_deed(deed).ended(back, 700.0)
    assert deed_of(deeds, advice(ON), 80_000.0) is None
    again = deed_of(Deeds.from_json(deeds.to_json()), advice(ON), 700.0 + 24 * 3600)
    assert again is not None
    assert again.on_limits == BEFORE


@pytest.mark.parametrize(
    ("action", "is_stopped", "estimate", "state"),
    [
        (Action.TURN_OFF, True, 0.8, DeedState.HELPED),
        (Action.TURN_OFF, True, 1.3, DeedState.TAKEN_BACK),
        (Action.TURN_OFF, False, 0.8, DeedState.DONE),  # of before, or it is not off
        (ON, False, 1.3, DeedState.HELPED),
        (ON, False, 0.8, DeedState.TAKEN_BACK),
        (ON, True, 1.3, DeedState.DONE),
    ],
)
def test_slices_say_whether_it_helped_at_any_load(
    action: Action, is_stopped: bool, estimate: float, state: DeedState
) -> None:
    deed = Deed("a", action, None, "", 0.0, DeedState.DONE, Speed(0.02, 0.0005, 4.0))
    after = replace(benefit(estimate, 12.0), is_stopped=is_stopped)
    found, words = judged(deed, Speed(0.05, 0.0005, 12.0), after, DWELL_S, DWELL_S)
    assert found is state
    assert (f"with drafts {estimate:.2f} times as fast" in words) == (state is not DeedState.DONE)


def test_slices_that_say_nothing_clear_leave_it_to_the_speed() -> None:
    deed = Deed("a", Action.TURN_OFF, None, "", 0.0, DeedState.DONE, Speed(0.02, 0.0005, 4.0))
    after = replace(benefit(0.98), is_stopped=True)
    assert judged(deed, Speed(0.015, 0.0002, 4.0), after, DWELL_S, DWELL_S)[0] is DeedState.HELPED
    assert judged(deed, Speed(0.03, 0.0002, 4.0), after, DWELL_S, DWELL_S)[0] is (
        DeedState.TAKEN_BACK
    )
    same = Speed(0.02, 0.0002, 4.0)
    assert judged(deed, same, after, 3 * DWELL_S, DWELL_S)[0] is DeedState.TAKEN_BACK
    state, words = judged(deed, None, after, 3 * DWELL_S, DWELL_S)
    assert state is DeedState.NOT_KNOWN  # they go on, and will say when it should be on
    assert words == "not clear yet: with drafts 0.98 times as fast as without"


def test_a_part_that_is_off_is_judged_by_what_drafts_would_do_there() -> None:
    """Not by the benefit, which is as low as before: that is why it is off."""
    part = "9-16 at a time"
    deed = Deed(
        "a", Action.TURN_OFF_FOR, None, part, 0.0, DeedState.DONE,
        Speed(0.02, 0.0005, 4.0), benefit(0.8, 12.0, part),
    )  # fmt: skip
    same = replace(benefit(0.8, 12.0, part), is_stopped=True)
    assert judged(deed, None, same, DWELL_S, DWELL_S)[0] is DeedState.HELPED
    better = replace(benefit(1.2, 12.0, part), is_stopped=True)
    assert judged(deed, None, better, DWELL_S, DWELL_S)[0] is DeedState.TAKEN_BACK


def test_a_server_that_was_restarted_drafts_again() -> None:
    off = helped(Action.TURN_OFF)
    drafting = Reading(1.0, "outdraft", {}, {})
    assert is_undone(off, drafting, ())
    assert not is_undone(off, replace(drafting, is_stopped=True), ())
    assert not is_undone(off, replace(drafting, engine="vllm"), ())
    assert not is_undone(off, None, ())
    assert not is_undone(replace(off, state=DeedState.DONE), drafting, ())  # it may be read earlier
    assert not is_undone(helped(Action.LOWER_K), drafting, ())
    part = helped(Action.TURN_OFF_FOR, "9-16 at a time, 17-32 at a time")
    now = benefit(0.8, part="17-32 at a time")
    assert is_undone(part, drafting, (now,))
    assert not is_undone(part, drafting, (replace(now, is_stopped=True),))
    assert not is_undone(part, drafting, (replace(now, source=Source.CONTROL),))
    assert not is_undone(part, drafting, (replace(now, part="1 at a time"),))
