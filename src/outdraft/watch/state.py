"""What a watch must not lose when it is killed: files that are written whole.

Events are written before the state that knows of them. So a state that is read again may lack the
last events; they are done to it once more (`after`), and nothing is said twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from outdraft.errors import CorruptFileError
from outdraft.watch.actions import Deed, Deeds, DeedState
from outdraft.watch.advice import AdviceState, Wanted
from outdraft.watch.alarms import KINDS, Standings
from outdraft.watch.alarms.standing import NOTHING_STANDS
from outdraft.watch.events import Told
from outdraft.watch.findings import Action, Advice, Alarm
from outdraft.whole_file import read_json, write_json, write_text

_FORMAT = 1

# The kinds of notices, and what each tells
ALARM, ALARM_ENDED = "alarm", "alarm ended"
ADVICE, ADVICE_ENDED = "advice", "advice ended"
ACTION, TAKEN_BACK, REPLICA = "action", "action taken back", "replica"


class PastBenefit(NamedTuple):
    """Of all replicas together: histories have everything else that a chart shows."""

    at: float
    estimate: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class WatchState:
    since: float  # when the watch began
    at: float
    number: int = 0  # of the last event that it knows of
    delivered: int = 0  # of the last event that the webhook took
    standings: Standings = NOTHING_STANDS
    advice: Mapping[str, AdviceState] = field(default_factory=dict)  # by replica
    deeds: Deeds = field(default_factory=Deeds)

    def after(self, told: Told) -> WatchState:
        """As it was when it had told this."""
        number, notice = told
        if number <= self.number:
            return self
        state = replace(self, number=number)
        data, kind = notice.data, notice.kind
        if kind == ALARM:
            alarm = Alarm.from_json(data)
            return replace(state, standings=state.standings.with_alarm(alarm, notice.at))
        if kind == ALARM_ENDED:
            key = str(data["kind"]), notice.replica
            return replace(state, standings=state.standings.without(key))
        if kind == ADVICE:
            advised = AdviceState(Advice.from_json(data))
            return replace(state, advice={**state.advice, notice.replica: advised})
        if kind == ADVICE_ENDED:
            left = {name: each for name, each in state.advice.items() if name != notice.replica}
            return replace(state, advice=left)
        if kind in (ACTION, TAKEN_BACK):
            deed = Deed.from_json(data)
            is_over = deed.state in (DeedState.FAILED, DeedState.TAKEN_BACK)
            deeds = state.deeds.ended(deed, notice.at) if is_over else state.deeds.with_deed(deed)
            return replace(state, deeds=deeds)
        return state

    def to_json(self) -> dict[str, Any]:
        return {
            "format": _FORMAT,
            "since": self.since,
            "at": self.at,
            "number": self.number,
            "delivered": self.delivered,
            "alarms": [
                {"alarm": asdict(alarm), "seen": self.standings.seen[key]}
                for key, alarm in self.standings.alarms.items()
            ],
            "advice": {name: asdict(each) for name, each in self.advice.items()},
            "deeds": self.deeds.to_json(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> WatchState:
        if data["format"] != _FORMAT:
            raise ValueError(f"form {data['format']!r}")
        standings = NOTHING_STANDS
        for each in data["alarms"]:
            alarm = Alarm.from_json(each["alarm"])
            if alarm.kind in KINDS:  # another version may have had others
                standings = standings.with_alarm(alarm, float(each["seen"]))
        return cls(
            float(data["since"]),
            float(data["at"]),
            int(data["number"]),
            int(data["delivered"]),
            standings,
            {name: _advice_state(each) for name, each in data["advice"].items()},
            Deeds.from_json(data["deeds"]),
        )


def _advice_state(data: Mapping[str, Any]) -> AdviceState:
    standing, candidate = data["standing"], data["candidate"]
    return AdviceState(
        None if standing is None else Advice.from_json(standing),
        None
        if candidate is None
        else Wanted(**{**candidate, "action": Action(candidate["action"])}),
        float(data["since"]),
        float(data["last_seen"]),
    )


def save_state(path: Path, state: WatchState) -> None:
    write_json(path, state.to_json())


def load_state(path: Path) -> WatchState | None:
    """None where there is no file. CorruptFileError where it is not one of ours."""
    if not path.exists():
        return None
    data = read_json(path)
    try:
        return WatchState.from_json(data)
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise _foreign(path, error) from error


def save_histories(
    path: Path, histories: Mapping[str, str], benefits: Iterable[PastBenefit] = ()
) -> None:
    """Each in JSON. Beside the state, which is written at every event: they are long, and change
    slowly."""
    written = ",".join(f"{json.dumps(name)}:{text}" for name, text in histories.items())
    past = json.dumps([list(each) for each in benefits])
    text = f'{{"format":{_FORMAT},"benefits":{past},"histories":{{{written}}}}}'
    write_text(_beside(path), text)


def load_histories(path: Path) -> dict[str, Any]:
    """Of each replica."""
    return dict(_read_histories(path)["histories"])


def load_benefits(path: Path) -> list[PastBenefit]:
    """Of all of them together; an earlier version kept none."""
    try:
        return [PastBenefit(*each) for each in _read_histories(path).get("benefits", ())]
    except TypeError as error:
        raise _foreign(_beside(path), error) from error


def _read_histories(path: Path) -> Mapping[str, Any]:
    beside = _beside(path)
    if not beside.exists():
        return {"histories": {}}
    data = read_json(beside)
    if data.get("format") != _FORMAT or not isinstance(data.get("histories"), dict):
        raise _foreign(beside, ValueError("no histories"))
    return data


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.histories")


def _foreign(path: Path, error: Exception) -> CorruptFileError:
    return CorruptFileError(
        f"{path} holds no state of a watch ({error!r}); name another file with --state, or "
        "remove it to begin anew"
    )
