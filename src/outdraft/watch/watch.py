"""One look after the other: what servers did → benefits, alarms, advice, deeds, a snapshot.

The clock, the readings and the doing are passed in, so that a replay runs as the real thing does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from outdraft.observe.reading import Growth, Reading
from outdraft.watch.actions import (
    OFF_ACTIONS,
    Deed,
    DeedState,
    is_undone,
    judged,
    next_deed,
)
from outdraft.watch.advice import AdviceRules, AdviceState, Seen, advise, unheard
from outdraft.watch.alarms import find_alarms, stand
from outdraft.watch.benefit.costs import Costs
from outdraft.watch.events import Events, Told
from outdraft.watch.fellows import SETTLES_S, fellows_of, must_wait
from outdraft.watch.findings import FLEET, Action, Advice, Alarm, Notice
from outdraft.watch.history import TENS_S, Histories, History
from outdraft.watch.history_json import HistoryWriter, history_from_json
from outdraft.watch.pasts import SPEED_MINUTES, Pasts
from outdraft.watch.presence import Presence
from outdraft.watch.scraper import Unreadable
from outdraft.watch.snapshot import ReplicaState, ReplicaView, Snapshot, window_figures
from outdraft.watch.state import (
    ACTION,
    ADVICE,
    ADVICE_ENDED,
    ALARM,
    ALARM_ENDED,
    REPLICA,
    TAKEN_BACK,
    PastBenefit,
    WatchState,
    load_benefits,
    load_histories,
    load_state,
    save_histories,
    save_state,
)
from outdraft.watch.weighing import Weighing, Worth, kind_of

_SHORTEST_S = 60.0 * (SPEED_MINUTES + 2)  # that has room for so many whole minutes
_SHOWN = 50  # notices in a snapshot
BENEFITS_APART_S = 600.0  # that are kept, as far apart as the coarsest part of a history


@dataclass(frozen=True, slots=True)
class WatchRules:
    interval_s: float = 5.0
    window_s: float = 600.0
    advice: AdviceRules = field(default_factory=AdviceRules)
    acts: bool = False
    most_deeds_per_hour: int = 6
    weigh_every_s: float = 10.0  # at least; less often where there are many replicas
    save_every_s: float = 60.0
    save_histories_every_s: float = 120.0


class Watch:
    def __init__(
        self,
        rules: WatchRules,
        *,
        now: float,
        events: Path | None = None,
        state: Path | None = None,
        costs: Costs | None = None,
    ) -> None:
        """Goes on where an earlier one with the same files was ended."""
        self.rules, self._path = rules, state
        known = None if state is None else load_state(state)
        self.state = known or WatchState(now, now)
        self.events = Events(events, number=self.state.number)
        for told in self.events.after(self.state.number) if known else ():
            self.state = self.state.after(told)
        if known is None:
            self.state = replace(self.state, number=self.events.number)
        self.histories = Histories(rules.interval_s)
        self._benefits: deque[PastBenefit] = deque(maxlen=int(TENS_S / BENEFITS_APART_S))
        if state is not None:
            self.histories.restore(
                {name: history_from_json(each) for name, each in load_histories(state).items()}
            )
            self._benefits.extend(load_benefits(state))
        self._presence = Presence(self.histories, self.events.recent)
        self._pasts = Pasts()
        self._weighing = Weighing(rules.window_s, rules.weigh_every_s, costs)
        self._writers: dict[str, HistoryWriter] = {}
        self._right_since: dict[str, float] = {}  # what stands, also before it stood
        self._saved_at = self._histories_saved_at = 0.0
        self._alarms_at = 0.0
        self._is_changed = False
        self.told: list[Told] = []  # since somebody last took them away
        self.wanted: list[Deed] = [  # to be done by somebody, who then calls `done`
            deed for deed in self.state.deeds.unfinished() if rules.acts and deed.again_at is None
        ]

    def look(self, found: Mapping[str, Reading | Unreadable], now: float) -> Snapshot:
        """`found`: of every replica that is watched now."""
        self.histories.update(found, now)
        for replica, text in self._presence.update(found, self.histories, now):
            self._tell(Notice(now, REPLICA, replica, text))
        present = {name: self.histories[name] for name in found if name in self.histories}
        weighed = self._weighing.weigh_due(present, now, self.rules.interval_s)
        self._remember_benefit(now)
        self._find_alarms(present, now)
        windows = {
            name: window
            for name, history in present.items()
            if (window := history.window(self.rules.window_s, now)) is not None
        }
        self._advise(weighed, present, windows, now)
        self._act(weighed, present, now)
        if self.rules.acts:
            self._take_back_again(now)
        self.state = replace(self.state, at=now)
        self._save(now)
        return self._snapshot(found, windows, now)

    def done(self, deed: Deed, problem: str, now: float) -> None:
        """A deed of `wanted` was done, or taken back, or that went wrong."""
        what = "taken back" if deed.state is DeedState.TAKEN_BACK else "done"
        text = (
            f"{deed.words} could not be {what}: {problem}" if problem else f"{deed.words} is {what}"
        )
        self._tell(Notice(now, ACTION, deed.replica, text, asdict(deed.ended(problem, now))))

    def note(self, deed: Deed) -> None:
        """What was found out before it is done; on the disk, since afterwards it cannot be."""
        self.state = replace(self.state, deeds=self.state.deeds.with_deed(deed))
        if self._path is not None:
            save_state(self._path, self.state)

    def delivered(self, number: int) -> None:
        if number > self.state.delivered:
            self.state = replace(self.state, delivered=number)

    def close(self, now: float) -> None:
        if self._path is not None:
            save_state(self._path, self.state)
            self._save_histories(now)
        self.events.close()

    def _find_alarms(self, present: Mapping[str, History], now: float) -> None:
        """Once for every minute that ended."""
        ends = [history.minutes[-1].end for history in present.values() if history.minutes]
        if not ends or max(ends) <= self._alarms_at:
            return
        self._alarms_at = max(ends)
        off = {
            name
            for name, each in self.state.advice.items()
            if each.standing is not None and each.standing.action in OFF_ACTIONS
        }
        found = find_alarms(self._pasts.of(present, off), self._alarms_at)
        standings, raised, ended = stand(self.state.standings, found, now, present)
        for alarm in raised:
            self._tell(Notice(now, ALARM, alarm.replica, _words(alarm), asdict(alarm)))
        for alarm in ended:
            text = f"{alarm.kind} ended"
            self._tell(Notice(now, ALARM_ENDED, alarm.replica, text, asdict(alarm)))
        self.state = replace(self.state, standings=standings)

    def _remember_benefit(self, now: float) -> None:
        found = self._worth_of(FLEET).benefit
        last = self._benefits[-1].at if self._benefits else 0.0
        if found is not None and now - last >= BENEFITS_APART_S:
            self._benefits.append(PastBenefit(now, found.estimate, found.low, found.high))

    def _advise(
        self,
        weighed: Iterable[str],
        present: Mapping[str, History],
        windows: Mapping[str, Growth],
        now: float,
    ) -> None:
        apart_s = self._weighing.pause_s(len(present)) + self.rules.interval_s
        rules = replace(self.rules.advice, apart_s=apart_s)
        for name in weighed:
            if name == FLEET and len(present) == 1:
                self._share_with_fleet(*present)
                continue
            of = present if name == FLEET else {name: present[name]}
            drafting = {each: history for each, history in of.items() if history.speculates}
            own = [windows[each] for each in drafting or of if each in windows]
            seen = None
            if own:
                is_stopped = bool(drafting) and all(each.is_stopped for each in drafting.values())
                seen = Seen.of(
                    self._worth_of(name), own, speculates=bool(drafting), is_stopped=is_stopped
                )
            self._advised(name, seen, now, rules)
        kept = {FLEET, *self.histories}
        advice = {name: each for name, each in self.state.advice.items() if name in kept}
        self._right_since = {k: v for k, v in self._right_since.items() if k in kept}
        self.state = replace(self.state, advice=advice)

    def _share_with_fleet(self, name: str) -> None:
        """What is advised to the only replica, whatever else is on the list and never answers."""
        advised = self.state.advice.get(name, AdviceState()).standing
        shared = AdviceState(None if advised is None else replace(advised, replica=FLEET))
        self.state = replace(self.state, advice={**self.state.advice, FLEET: shared})

    def _advised(self, name: str, seen: Seen | None, now: float, rules: AdviceRules) -> None:
        before = self.state.advice.get(name, AdviceState())
        after = unheard(before) if seen is None else advise(before, seen, now, name, rules)
        old, new = before.standing, after.standing
        if new is not None and (old is None or old.words != new.words):
            was_candidate = before.candidate is not None and before.candidate.action is new.action
            self._right_since[name] = before.since if was_candidate else new.since
            text = f"{new.words}: {new.reason}"
            self._tell(Notice(now, ADVICE, name, text, asdict(new)))
        elif new is None and old is not None:
            how = "was followed" if old.action is Action.TURN_OFF else "ended"
            text = f"{old.words} {how}: there is no speculation any more"
            self._tell(Notice(now, ADVICE_ENDED, name, text, asdict(old)))
        self.state = replace(self.state, advice={**self.state.advice, name: after})

    def _act(self, names: Iterable[str], present: Mapping[str, History], now: float) -> None:
        if not self.rules.acts:
            return  # also what an earlier watch did is left to one that acts
        deeds = self.state.deeds.without_gone(self.histories, now)
        self.state = replace(self.state, deeds=deeds)
        for each in tuple(self.state.deeds.newest.values()):
            if each.state is DeedState.DONE and each.replica not in present:
                self._judge(each, now)  # others wait for it
        for name, history in ((name, present[name]) for name in names if name in present):
            advised = self.state.advice.get(name)
            deed = self.state.deeds.newest.get(name)
            if deed is not None and is_undone(deed, history.last, self._worth_of(name).parts):
                self._right_since[name] = now  # what is advised since then is looked at anew
                text = f"{deed.words} holds no more: the server was restarted, or told otherwise"
                gone = replace(deed, state=DeedState.GONE)
                self._tell(Notice(now, ACTION, name, text, asdict(gone)))
            elif deed is not None and deed.state is DeedState.DONE:
                self._judge(deed, now)
            elif advised is not None and advised.standing is not None:
                self._decide(name, advised.standing, now)

    def _decide(self, name: str, advice: Advice, now: float) -> None:
        last = self.state.deeds.newest.get(name)
        is_off = advice.action is Action.TURN_OFF and self.histories[name].is_stopped
        if is_off and not (last is not None and last.state is DeedState.FAILED):
            return  # somebody did it; where we tried to, it may have been us
        since = self._right_since.get(name, advice.since)
        if now - since < self.rules.advice.dwell_s:
            return  # the first advice stands sooner than that
        # Not of the time in which another advice was right: that was another traffic.
        speed = self._pasts.speed(
            name, max(since, now - max(self.rules.window_s, _SHORTEST_S)), now
        )
        if speed is None:
            return  # nobody could say later whether it helped
        most = self.rules.most_deeds_per_hour
        parts = [
            each for each in self._worth_of(name).parts if each.part in advice.part.split(", ")
        ]
        if parts:
            advice = replace(advice, benefit=min(parts, key=lambda each: each.estimate))
        kind = kind_of(self.histories[name])
        deed = next_deed(self.state.deeds, advice, now, speed=speed, most_per_hour=most, kind=kind)
        if deed is not None and not must_wait(self.state.deeds, deed, self._fellows(deed)):
            self._tell(Notice(now, ACTION, name, f"{deed.words}: {advice.reason}", asdict(deed)))
            self.wanted.append(deed)

    def _fellows(self, deed: Deed) -> dict[str, bool]:
        states, deeds = self._presence.states, self.state.deeds
        interval_s = self.rules.interval_s
        return fellows_of(deed, deeds, self.histories, states, self._pasts, interval_s=interval_s)

    def _judge(self, deed: Deed, now: float) -> None:
        # What it did before it died is no sign that it helped.
        answers = self._presence.states.get(deed.replica) is ReplicaState.UP
        speed = self._pasts.speed(deed.replica, deed.at + SETTLES_S, now) if answers else None
        worth = self._worth_of(deed.replica)
        part = "" if deed.benefit is None else deed.benefit.part
        benefit = next((each for each in worth.parts if each.part == part), None)
        if not part:
            benefit = worth.benefit
        if not answers or (benefit is not None and benefit.start < deed.at):
            benefit = None  # of the time before
        state, figures = judged(deed, speed, benefit, now, self.rules.advice.dwell_s)
        if state in (DeedState.HELPED, DeedState.NOT_KNOWN):
            deed = replace(deed, state=state)
            text = f"{deed.words} helped: {figures}"
            if state is DeedState.NOT_KNOWN:
                figures = figures if answers else "it does not answer"
                text = f"{deed.words} is done, it is not known whether it helped: {figures}"
            self._tell(Notice(now, ACTION, deed.replica, text, asdict(deed)))
        elif state is DeedState.TAKEN_BACK:
            deed = replace(deed, state=state)
            text = f"{deed.words} did not help and is taken back: {figures}"
            self._tell(Notice(now, TAKEN_BACK, deed.replica, text, asdict(deed)))
            self.wanted.append(deed)

    def _take_back_again(self, now: float) -> None:
        """Where it failed, and the pause is over."""
        for deed in tuple(self.state.deeds.newest.values()):
            is_waiting = deed.state is DeedState.TAKEN_BACK and deed.again_at is not None
            if is_waiting and (deed.again_at or 0.0) <= now and deed.replica in self.histories:
                deed = replace(deed, again_at=None)
                self.note(deed)
                self.wanted.append(deed)

    def _worth_of(self, name: str) -> Worth:
        return self._weighing.worth.get(name, Worth())

    def _tell(self, notice: Notice) -> None:
        """On the disk first, then in the state."""
        told = self.events.append(notice)
        self.state = self.state.after(told)
        self.told.append(told)
        self._is_changed = True

    def _save(self, now: float) -> None:
        if self._path is None:
            return
        if self._is_changed or now - self._saved_at >= self.rules.save_every_s:
            save_state(self._path, self.state)
            self._saved_at, self._is_changed = now, False
        if now - self._histories_saved_at >= self.rules.save_histories_every_s:
            self._save_histories(now)

    def _save_histories(self, now: float) -> None:
        if self._path is not None:
            self._writers = {
                name: self._writers.get(name) or HistoryWriter() for name in self.histories
            }
            written = {
                name: self._writers[name].text(each) for name, each in self.histories.items()
            }
            save_histories(self._path, written, self._benefits)
            self._histories_saved_at = now

    def _snapshot(
        self,
        found: Mapping[str, Reading | Unreadable],
        windows: Mapping[str, Growth],
        now: float,
    ) -> Snapshot:
        views = [
            self._view(name, self._presence.states[name], windows.get(name))
            for name in self._presence.states
        ]
        fleet = self._view(FLEET, ReplicaState.UP, Growth.together(windows.values()))
        drafting = [view.speculates for view in views if view.state is ReplicaState.UP]
        if drafting and None not in drafting:
            fleet = replace(fleet, speculates=any(drafting))
        num_up = sum(isinstance(each, Reading) for each in found.values())
        if not num_up:
            fleet = replace(fleet, state=ReplicaState.DOWN if found else ReplicaState.NEW)
        notices = tuple(told.notice for told in self.events.recent[-_SHOWN:])
        return Snapshot(
            now, self.state.since, self.rules.window_s, tuple(views), fleet, notices,
            has_answered=self._presence.has_answered,
        )  # fmt: skip

    def _view(self, name: str, state: ReplicaState, window: Growth | None) -> ReplicaView:
        last = self.histories[name].last if name in self.histories else None
        worth = self._worth_of(name)
        advised = self.state.advice.get(name)
        return ReplicaView(
            name,
            state,
            None if last is None else last.engine,
            None if last is None else last.model,
            None if last is None else last.version,
            self._presence.reasons.get(name, ""),
            None if last is None else last.speculates,
            None if window is None else window_figures(window),
            worth.benefit,
            worth.parts,
            self.state.standings.of(name),
            None if advised is None else advised.standing,
            None if last is None else last.method,
        )


def _words(alarm: Alarm) -> str:
    return f"{alarm.kind}: {alarm.evidence}"
