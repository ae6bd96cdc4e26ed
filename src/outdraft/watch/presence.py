"""Which replicas are there, and what became of them since the last look, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from outdraft.observe.reading import Reading
from outdraft.watch.events import Told
from outdraft.watch.history import Histories
from outdraft.watch.scraper import Unreadable
from outdraft.watch.snapshot import ReplicaState
from outdraft.watch.state import REPLICA

_KEPT_S = 3600.0  # so long one that is gone is still shown
_NO_ANSWER = "does not answer"
_DOWN_S = 15.0  # without an answer before it is said


class Presence:
    def __init__(self, known: Histories, told: Sequence[Told]) -> None:
        """`known`, `told`: of an earlier watch, which are no news."""
        self.states: dict[str, ReplicaState] = {}
        self.reasons: dict[str, str] = {}
        self.has_answered = False  # anybody, since this watch began
        self._known = frozenset(known)
        self._failing_since: dict[str, float] = {}
        self._gone_at: dict[str, float] = {}
        last = {each.replica: each.text for _, each in told if each.kind == REPLICA}
        self._said_down = {name for name, text in last.items() if text.startswith(_NO_ANSWER)}
        self._changes = {  # the newest that was said
            name: history.changes[-1].at for name, history in known.items() if history.changes
        }
        self._restarts = {name: history.last.at for name, history in known.items() if history.last}
        # Said after the histories were last written down: at the first look it seems new again.
        since = {name: history.last.at for name, history in known.items() if history.last}
        self._told = {
            (each.replica, each.text)
            for _, each in told
            if each.kind == REPLICA and each.at > since.get(each.replica, 0.0)
        }
        self._is_first = True

    def update(
        self, found: Mapping[str, Reading | Unreadable], histories: Histories, now: float
    ) -> list[tuple[str, str]]:
        """What is new: (replica, words)."""
        news = [*self._answers(found, now), *self._absent(found, now)]
        for name, each in found.items():
            if name in histories:
                changed = {(name, text): None for text in self._changed(name, histories)}
                news += [one for one in changed if one not in self._told]
            if isinstance(each, Reading):
                self._told = {one for one in self._told if one[0] != name}
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
                self.has_answered = True
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
                yield name, f"{_NO_ANSWER}: {each.reason}"

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
        said = self._changes.get(name, 0.0)
        for change in history.changes:
            if change.at > said:
                self._changes[name] = change.at
                yield f"{change.what} {change.before} → {change.after}"
        grown = history.fine[-1] if history.fine else None
        if grown is not None and grown.num_restarts and grown.end > self._restarts.get(name, 0.0):
            self._restarts[name] = grown.end
            yield "was restarted"
