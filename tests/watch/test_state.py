from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from outdraft.errors import CorruptFileError
from outdraft.watch.actions import Deed, DeedState, Speed
from outdraft.watch.advice import AdviceState, Wanted
from outdraft.watch.alarms import KINDS
from outdraft.watch.events import Told
from outdraft.watch.findings import Action, Advice, Benefit, Notice, Source
from outdraft.watch.state import (
    ACTION,
    ADVICE,
    ADVICE_ENDED,
    ALARM,
    ALARM_ENDED,
    TAKEN_BACK,
    WatchState,
    load_histories,
    load_state,
    save_histories,
    save_state,
)

ALARM_A = KINDS["kv_squeeze"].alarm("a", 5.0, "97 %")
BENEFIT = Benefit(Source.CONTROL, 0.8, 0.7, 0.9, 0.0, 5.0, "alike")
OFF = Advice(Action.TURN_OFF, "a", 6.0, "it loses", benefit=BENEFIT)
DEED = Deed("a", Action.TURN_OFF, None, "", 7.0, DeedState.ASKED, Speed(0.02, 0.001, 3.0), BENEFIT)


def told() -> list[Told]:
    taken_back = replace(DEED, state=DeedState.TAKEN_BACK)
    notices = [
        Notice(5.0, ALARM, "a", "x", asdict(ALARM_A)),
        Notice(6.0, ADVICE, "a", "x", asdict(OFF)),
        Notice(7.0, ACTION, "a", "x", asdict(DEED)),
        Notice(8.0, TAKEN_BACK, "a", "x", asdict(taken_back)),
        Notice(9.0, ALARM_ENDED, "a", "x", asdict(ALARM_A)),
        Notice(9.5, ADVICE_ENDED, "a", "x", asdict(OFF)),
    ]
    return [Told(number, notice) for number, notice in enumerate(notices, 1)]


def test_events_that_a_state_does_not_know_are_done_to_it() -> None:
    states = [WatchState(1.0, 1.0)]
    for each in told():
        states.append(states[-1].after(each))
    assert states[1].standings.of("a") == (ALARM_A,)
    assert states[2].advice["a"].standing == OFF
    assert states[3].deeds.newest["a"] == DEED
    assert states[4].deeds.newest["a"].state is DeedState.TAKEN_BACK
    assert states[4].deeds.barred
    assert not states[5].standings.alarms
    assert states[5].advice
    assert not states[6].advice
    assert states[6].after(told()[0]) == states[6]  # known already


def test_a_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    assert load_state(path) is None
    assert load_histories(path) == {}
    state = WatchState(1.0, 2.0, delivered=3)
    for each in told()[:4]:
        state = state.after(each)
    candidate = Wanted(Action.LOWER_K, "better", k=2, gain=1.2)
    state = replace(state, advice={**state.advice, "b": AdviceState(None, candidate, 3.0, 4.0)})
    save_state(path, state)
    save_histories(path, {"a": '{"format": 1}'})
    assert load_state(path) == state
    assert load_histories(path) == {"a": {"format": 1}}


@pytest.mark.parametrize("text", ["{}", '{"format": 2}', "[]", "torn", '{"format": 1, "at": []}'])
def test_another_file_is_not_taken_for_a_state(tmp_path: Path, text: str) -> None:
    path = tmp_path / "state.json"
    path.write_text(text)
    with pytest.raises(CorruptFileError, match=r"state\.json"):
        load_state(path)
    (tmp_path / "state.json.histories").write_text(text)
    with pytest.raises(CorruptFileError, match=r"state\.json\.histories"):
        load_histories(path)
