"""The words of alarms: what they are called, within what time they come, what to try next."""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files as resources

from outdraft.watch.findings import FLEET, Alarm


@dataclass(frozen=True, slots=True)
class AlarmKind:
    name: str
    title: str
    delay_s: float  # from the fault to the alarm, at most, with the traffic of `needs`
    ends_s: float  # so long without evidence, and it is over
    needs: str
    advice: str  # one line
    command: str  # {replica}: its URL

    def alarm(self, replica: str, since: float, evidence: str) -> Alarm:
        command = self.command.replace("{replica}", shlex.quote(_url(replica)))
        return Alarm(self.name, replica, since, evidence, self.advice, command)


def _url(replica: str) -> str:
    """A replica's name has its host and port, and comes from a file or a label: it is quoted."""
    if not replica or "://" in replica:
        return replica or "URL"
    host = replica.partition("/")[0]
    return f"{'https' if host.endswith(':443') else 'http'}://{replica}"


def _read() -> Mapping[str, AlarmKind]:
    text = resources("outdraft.watch.alarms").joinpath("alarms.toml").read_text("utf-8")
    kinds = tomllib.loads(text)
    return {name: AlarmKind(name, **values) for name, values in kinds.items()}


KINDS = _read()
__all__ = ["FLEET", "KINDS", "AlarmKind"]
