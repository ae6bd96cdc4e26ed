"""What a watch finds: benefits, alarms, advice. Plain values, written as JSON in events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

FLEET = ""  # the name of all replicas together


class Source(StrEnum):
    """Where a net benefit comes from, the most direct first."""

    CONTROL = "control"  # plain replicas among the watched ones, under the same load
    CANARY = "canary"  # short slices without speculation on the same server
    COSTS = "costs"  # the costs that `tune` measured, and the acceptance of now

    @property
    def words(self) -> str:
        return _SOURCE_WORDS[self]


_SOURCE_WORDS = {
    Source.CONTROL: "by plain replicas",
    Source.CANARY: "by canary slices",
    Source.COSTS: "by step costs",
}


class Action(StrEnum):
    KEEP = "KEEP"
    LOWER_K = "LOWER K"
    TURN_OFF = "TURN OFF"
    TURN_OFF_FOR = "TURN OFF FOR"
    TURN_ON = "TURN ON"  # again, where it was turned off while the server runs


@dataclass(frozen=True, slots=True)
class Benefit:
    """The speedup by speculation over none: 1 is break-even. Of time per token after the first."""

    source: Source
    estimate: float
    low: float | None  # None: too little was seen for an interval
    high: float | None
    start: float  # seconds since 1970, of what it is about
    end: float
    assumes: str  # one sentence
    running: float | None = None  # requests at a time, on average
    part: str = ""  # "temperature 1+", "9 or more at a time"; empty: everything
    # Of the tokens, that the part has; of everything: of the time of texts, that it is about,
    # where that is not all.
    share: float | None = None
    is_stopped: bool = False  # drafts are turned off there, and tried in slices

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Benefit:
        return cls(**{**data, "source": Source(data["source"])})

    @property
    def is_of_little(self) -> bool:
        """It is about too little of the traffic to speak for all of it."""
        return self.low is None and self.share is not None and not self.part

    @property
    def is_loss(self) -> bool:
        return self.high is not None and self.high < 1

    @property
    def is_gain(self) -> bool:
        return self.low is not None and self.low > 1


@dataclass(frozen=True, slots=True)
class Alarm:
    kind: str  # e.g. "acceptance_collapsed"; the names of alarms.toml
    replica: str  # FLEET: all of them
    since: float
    evidence: str  # one line with the figures
    advice: str  # one line: the next thing to try
    command: str  # one command

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Alarm:
        return cls(**data)


@dataclass(frozen=True, slots=True)
class Advice:
    action: Action
    replica: str
    since: float
    reason: str
    k: int | None = None  # of LOWER K
    part: str = ""  # of TURN OFF FOR, and of TURN ON for such a part
    benefit: Benefit | None = None
    lost_tokens_per_hour: float | None = None  # what not following it costs
    lost_gpu_seconds_per_hour: float | None = None
    lost_money_per_hour: float | None = None

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Advice:
        found = data.get("benefit")
        benefit = None if found is None else Benefit.from_json(found)
        return cls(**{**data, "action": Action(data["action"]), "benefit": benefit})

    @property
    def words(self) -> str:
        if self.action is Action.LOWER_K:
            return f"{self.action} TO {self.k}"
        if self.action is Action.TURN_ON and self.part:
            return f"{self.action} FOR {self.part}"
        return f"{self.action} {self.part}".rstrip()


@dataclass(frozen=True, slots=True)
class Notice:
    """A line of the events file, and the body of a webhook."""

    at: float
    kind: str  # one of those in `state`
    replica: str
    text: str
    data: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Notice:
        return cls(**data)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
