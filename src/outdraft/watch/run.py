"""A whole watch: looks again and again, shows what it sees, tells others, does what is advised."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import aiohttp

from outdraft.errors import BackendError, OptionError
from outdraft.observe.fetch import open_session
from outdraft.watch.acting import Acting
from outdraft.watch.actions import OURS, Deed, DeedState, Passing
from outdraft.watch.advice import AdviceRules
from outdraft.watch.baseline import read_baseline
from outdraft.watch.benefit.costs import Costs
from outdraft.watch.prometheus import PrometheusSource
from outdraft.watch.settings import WatchSettings
from outdraft.watch.snapshot import Posting, Snapshot
from outdraft.watch.sources import Readings, Say, Scraped, Servers
from outdraft.watch.watch import Watch, WatchRules
from outdraft.watch.webhook import Webhook
from outdraft.watch.weighing import is_measured_with
from outdraft.watch.words import one_line

_LAST_POSTS_S = 5.0  # for what the webhook has not taken yet, at the end

Show = Callable[[Snapshot], None]


class Running:
    """OptionError at the first look, where `--act` lacks the key of a server of ours."""

    def __init__(
        self,
        watch: Watch,
        readings: Readings,
        webhook: Webhook | None,
        acting: Acting,
        say: Say = lambda line: None,
        baseline: Costs | None = None,
    ) -> None:
        self._watch, self._readings, self._say = watch, readings, say
        self._webhook, self._acting, self._baseline = webhook, acting, baseline
        self._doing: set[asyncio.Task[None]] = set()
        self._is_first = True
        self._said: set[str] = set()
        self._is_failing = False  # the webhook, and that was said

    async def look(self) -> Snapshot:
        found = await self._readings.look(time.time())
        snapshot = self._watch.look(found, time.time())
        if self._is_first and self._watch.rules.acts and self._acting.admin_key is None:
            _check_that_none_is_ours(snapshot)
        if self._is_first and not self._watch.rules.acts:
            self._say_what_is_unfinished()
        self._is_first = False
        self._say_what_is_left_out(snapshot)
        self._tell()
        if self._webhook is not None:
            posting = Posting(self._webhook.problem, self._webhook.num_lost)
            snapshot = replace(snapshot, posting=posting)
        while self._watch.wanted:
            task = asyncio.create_task(self._do(self._watch.wanted.pop(0)))
            self._doing.add(task)
            task.add_done_callback(self._doing.discard)
        return snapshot

    async def end(self) -> None:
        """What is being done is waited for; what cannot be posted now is posted after a restart."""
        await asyncio.gather(*self._doing)
        self._tell()
        if self._webhook is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LAST_POSTS_S):
                    while self._webhook.num_waiting:
                        await asyncio.sleep(0.05)
            self._tell()

    def _tell(self) -> None:
        told, self._watch.told = self._watch.told, []
        if self._webhook is not None:
            for each in told:
                self._webhook.post(each)
            self._watch.delivered(self._webhook.delivered)
            problem, was_failing = self._webhook.problem, self._is_failing
            self._is_failing = bool(problem)
            if problem and not was_failing:
                self._say(f"--webhook {self._webhook.name} does not take events: {problem}")

    def _say_what_is_unfinished(self) -> None:
        """By an earlier watch that acted: only one that acts may change a server."""
        unfinished = self._watch.state.deeds.unfinished()
        if unfinished:
            which = ", ".join(f"{each.words} of {one_line(each.replica)}" for each in unfinished)
            self._say(f"an earlier watch left this unfinished: {which}; --act finishes it")

    def _say_what_is_left_out(self, snapshot: Snapshot) -> None:
        baseline = self._baseline
        if baseline is None:
            return
        self._said &= {view.name for view in snapshot.replicas}  # they come and go
        for view in snapshot.replicas:
            if not view.speculates or view.name in self._said:
                continue  # without speculation there is nothing that a baseline could say
            if not is_measured_with(baseline, view.method):
                self._said.add(view.name)
                self._say(
                    f"--baseline was measured with {baseline.method} and says nothing of "
                    f"{one_line(view.name)}, which runs {view.method}; measure that with "
                    f"`outdraft tune --methods {view.method}`"
                )

    async def _do(self, deed: Deed) -> None:
        """Once more, where an earlier watch was ended before it was done."""
        histories = self._watch.histories
        last = histories[deed.replica].last if deed.replica in histories else None
        engine, url = None if last is None else last.engine, self._readings.url(deed.replica)
        problem = ""
        if engine is None:
            problem = Passing("it has not answered yet, and its engine is not known")
        elif url is None and engine == OURS:
            problem = "its address is not known; give its URL, not --prometheus"
        elif deed.state is DeedState.TAKEN_BACK:
            problem = await self._acting.undo(deed, engine, url or "")
        else:
            if engine == OURS and deed.limits is None:
                limits, problem = await self._acting.limits(url or "")
                deed = deed.with_limits(limits)
            if not problem:
                self._watch.note(deed)
                problem = await self._acting.do(deed, engine, url or "")
        self._watch.done(deed, problem, time.time())


async def run_watch(
    settings: WatchSettings, show: Show, say: Say, stopped: asyncio.Event
) -> Snapshot | None:
    """The last snapshot. `say` is told one-line problems; it ends by `--for` or when `stopped`."""
    async with open_session() as session, _running(settings, session, say) as running:
        start, number, snapshot = time.monotonic(), 0, None
        while True:
            snapshot = await running.look()
            show(snapshot)
            passed_s = time.monotonic() - start
            if stopped.is_set() or (settings.for_s is not None and passed_s >= settings.for_s):
                break
            number = max(number + 1, int(passed_s / settings.interval_s))  # late looks are left out
            due_s = number * settings.interval_s
            if settings.for_s is not None:
                due_s = min(due_s, settings.for_s)
            with suppress(TimeoutError):
                async with asyncio.timeout(max(due_s - passed_s, 0)):
                    await stopped.wait()
        return snapshot


def _advice_rules(settings: WatchSettings) -> AdviceRules:
    """A run of a given length has no time for the usual dwell. One that acts takes it."""
    rules = AdviceRules(gpu_hour_cost=settings.gpu_hour_cost)
    if settings.for_s is None or settings.acts:
        return rules
    dwell_s = min(rules.first_dwell_s, settings.for_s / 6)
    return replace(rules, dwell_s=dwell_s, first_dwell_s=dwell_s)


@asynccontextmanager
async def _running(
    settings: WatchSettings, session: aiohttp.ClientSession, say: Say
) -> AsyncIterator[Running]:
    baseline = await asyncio.to_thread(read_baseline, settings.baseline)
    now = time.time()
    readings: Servers | Scraped = _readings(settings, session, say)
    if isinstance(readings, Scraped):
        await readings.start(now)
    rules = WatchRules(
        interval_s=readings.interval_s,
        window_s=settings.window_s,
        advice=_advice_rules(settings),
        acts=settings.acts,
        weigh_every_s=10.0 if settings.for_s is None else readings.interval_s,
    )
    had_state = settings.state is not None and settings.state.exists()
    watch = Watch(
        rules, now=now, events=settings.events, state=settings.state, costs=baseline.costs
    )
    if settings.for_s is not None:
        # Its answer is about this run: what stood at the end of the last one may be long ago.
        watch.state = replace(watch.state, advice={})
    webhook = None
    if settings.webhook is not None:
        webhook = Webhook(settings.webhook, settings.webhook_secret)
        webhook.delivered = watch.state.delivered
        for told in watch.events.after(watch.state.delivered) if had_state else ():
            webhook.post(told)
    posting = None if webhook is None else asyncio.create_task(webhook.run())
    acting = Acting(
        settings.act_dir, session, settings.admin_key, settings.act_command, baseline.known
    )
    try:
        if isinstance(readings, Scraped):
            await readings.remember(watch, settings.since_s, now)
        running = Running(watch, readings, webhook, acting, say, baseline.costs)
        yield running
        await running.end()
    finally:
        if posting is not None:
            posting.cancel()
            with suppress(asyncio.CancelledError):
                await posting
        watch.close(time.time())


def _readings(
    settings: WatchSettings, session: aiohttp.ClientSession, say: Say
) -> Servers | Scraped:
    if settings.prometheus is None:
        return Servers(session, settings, say)
    source = PrometheusSource(
        session,
        settings.prometheus,
        selector=settings.selector,
        api_key=settings.api_key,
        interval_s=settings.interval_s,
    )
    return Scraped(source, say)


def _check_that_none_is_ours(snapshot: Snapshot) -> None:
    ours = [view.name for view in snapshot.replicas if view.engine == OURS]
    if ours:
        raise OptionError(
            f"--act changes {ours[0]} with the key that it was started with; give that as "
            "--admin-key or $OUTDRAFT_ADMIN_KEY, or leave --act out"
        )


def check_that_somebody_answered(snapshot: Snapshot) -> None:
    """BackendError where no replica did in this run, whatever is known of earlier ones."""
    if snapshot.has_answered:
        return
    reasons = [f"{view.name}: {view.reason}" for view in snapshot.replicas if view.reason]
    why = f" ({reasons[0]})" if reasons else ""
    raise BackendError(f"no server answered{why}; check the addresses, and --api-key")
