"""The words of alarms: what they are called, within what time they come, what to try next."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files as resources

from outdraft.watch.findings import FLEET, Alarm

_NAMED = re.compile(r"\{(replica|model|engine)\}")


@dataclass(frozen=True, slots=True)
class AlarmKind:
    name: str
    title: str
    delay_s: float  # from the fault to the alarm, at most, with the traffic of `needs`
    ends_s: float  # so long without evidence, and it is over
    needs: str
    advice: str  # one line
    command: str  # {replica}: its URL; {model}, {engine}: what it runs

    def alarm(
        self,
        replica: str,
        since: float,
        evidence: str,
        *,
        model: str | None = None,
        engine: str | None = None,
    ) -> Alarm:
        first_model = (model or "").partition(",")[0]  # several are named with commas
        known = {
            "replica": _url(replica),
            "model": first_model or "YOUR-MODEL",
            "engine": engine or "YOUR-ENGINE",
        }
        # All at once: a name from outside may have the words of another in braces.
        command = _NAMED.sub(lambda found: shlex.quote(known[found[1]]), self.command)
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
