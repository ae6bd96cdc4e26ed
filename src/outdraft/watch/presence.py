"""Which replicas are there, and what became of them since the last look, in words."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from outdraft.observe.reading import Reading
from outdraft.watch.history import Histories
from outdraft.watch.scraper import Unreadable
from outdraft.watch.snapshot import ReplicaState

_KEPT_S = 3600.0  # so long one that is gone is still shown
_DOWN_S = 15.0  # without an answer before it is said


class Presence:
    def __init__(self, known: Collection[str] = ()) -> None:
        """`known`: replicas of an earlier watch, whose return is no news."""
        self.states: dict[str, ReplicaState] = {}
        self.reasons: dict[str, str] = {}
        self._known = frozenset(known)
        self._failing_since: dict[str, float] = {}
        self._gone_at: dict[str, float] = {}
        self._said_down: set[str] = set()
        self._changes: dict[str, float] = {}  # the newest that was said
        self._restarts: dict[str, float] = {}
        self._is_first = True

    def update(
        self, found: Mapping[str, Reading | Unreadable], histories: Histories, now: float
    ) -> list[tuple[str, str]]:
        """What is new: (replica, words)."""
        news = [*self._answers(found, now), *self._absent(found, now)]
        for name in found:
            if name in histories:
                news += [(name, text) for text in self._changed(name, histories)]
        self._is_first = False
        return news

    def _answers(
        self, found: Mapping[str, Reading | Unreadable], now: float
    ) -> Iterator[tuple[str, str]]:
        for name, each in found.items():
            before = self.states.get(name)
            if isinstance(each, Reading):
                is_unknown = before is None or before is ReplicaState.GONE
                self.states[name] = ReplicaState.UP
                self.reasons.pop(name, None)
                self._failing_since.pop(name, None)
                if is_unknown and not self._is_first and name not in self._known:
                    yield name, "joined"
                elif name in self._said_down:
                    yield name, "answers again"
                self._said_down.discard(name)
                continue
            self.reasons[name] = each.reason
            is_new = before in (None, ReplicaState.NEW)
            self.states[name] = ReplicaState.NEW if is_new else ReplicaState.DOWN
            failing_since = self._failing_since.setdefault(name, now)
            if now - failing_since >= _DOWN_S and name not in self._said_down:
                self.states[name] = ReplicaState.DOWN
                self._said_down.add(name)
                yield name, f"does not answer: {each.reason}"

    def _absent(
        self, found: Mapping[str, Reading | Unreadable], now: float
    ) -> Iterator[tuple[str, str]]:
        for name in [name for name in self.states if name not in found]:
            if self.states[name] is not ReplicaState.GONE:
                self.states[name] = ReplicaState.GONE
                self._gone_at[name] = now
                yield name, "is gone"
            elif now - self._gone_at.get(name, now) > _KEPT_S:
                del self.states[name], self._gone_at[name]
                self.reasons.pop(name, None)

    def _changed(self, name: str, histories: Histories) -> Iterator[str]:
        """Restarts and deployments. Those of before this watch are not told again."""
        history = histories[name]
        newest = history.changes[-1].at if history.changes else 0.0
        said = self._changes.setdefault(name, newest)
        for change in history.changes:
            if change.at > said:
                yield f"{change.what} {change.before} → {change.after}"
        self._changes[name] = max(said, newest)
        grown = history.fine[-1] if history.fine else None
        if grown is not None and grown.num_restarts and grown.end > self._restarts.get(name, 0.0):
            self._restarts[name] = grown.end
            yield "was restarted"
