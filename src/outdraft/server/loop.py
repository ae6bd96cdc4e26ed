"""The engine in a thread of its own, and the event loop's side of it.

The thread only steps. Requests and aborts reach it through an inbox that it empties before each
step, and all updates of a step go back in one call. HTTP never waits for a step, and a step never
waits for a reader: what a slow one has not read yet stays in its queue, which is bounded by the
length of a text.
"""

import asyncio
import threading
import time
import traceback
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from itertools import count

from outdraft.engine.draft_lengths import EVERYBODY
from outdraft.engine.engine import Engine
from outdraft.engine.outputs import StepResult, Update
from outdraft.engine.sequence import SamplingParams, TimeObjective
from outdraft.server.canary import Canary
from outdraft.server.engine_thread import EngineThread
from outdraft.server.metrics import Metrics
from outdraft.server.refusal import Refusal, shutting_down
from outdraft.workload.temperatures import band_limits


@dataclass(frozen=True, slots=True)
class EncodedPrompt:
    tokens: list[int]
    params: SamplingParams
    k: int | None  # this request's own draft length
    objective: TimeObjective | None = None


class Reply:
    """The choices of one HTTP request, as the engine writes them.

    Choice i of prompt p has index p * n + i.
    """

    def __init__(self, num_choices: int) -> None:
        self.request_ids: list[str] = []  # in the engine, one for each prompt
        self._num_unread = num_choices  # choices whose last update was not returned yet
        self._queue: deque[tuple[int, Update]] = deque()
        self._arrived = asyncio.Event()
        self._failure: Refusal | None = None

    def push(self, index: int, update: Update) -> None:
        self._queue.append((index, update))
        self._arrived.set()

    def fail(self, failure: Refusal) -> None:
        self._failure = failure
        self._arrived.set()

    async def updates(self) -> AsyncIterator[list[tuple[int, Update]]]:
        """The updates since the last batch, until every choice is finished."""
        while self._num_unread:
            await self._arrived.wait()
            self._arrived.clear()
            batch = list(self._queue)
            self._queue.clear()
            self._num_unread -= sum(update.finish_reason is not None for _, update in batch)
            if batch:
                yield batch
            if self._failure is not None and self._num_unread:
                raise self._failure


@dataclass(slots=True)
class _Open:
    """A request in the engine that is not finished."""

    reply: Reply
    first_index: int
    num_choices: int  # still being written


class EngineLoop:
    def __init__(
        self,
        engine: Engine,
        metrics: Metrics,
        thread: EngineThread,
        *,
        max_open: int,
        canary: Canary,
        on_failure: Callable[[], None],
    ) -> None:
        self.failure: str | None = None  # why the engine stopped by itself
        self.num_open = 0  # choices submitted and not finished
        self._engine = engine
        self._metrics = metrics
        self._max_open = max_open
        self._canary = self._first_canary = canary
        self._on_failure = on_failure
        self._ids = count()
        self._open: dict[str, _Open] = {}
        self._forgetting: asyncio.Future[Refusal | None] | None = None  # asked for, not done
        # Shared with the thread.
        self._inbox: deque[Callable[[], object]] = deque()
        self._wake = threading.Event()
        self._stopping = False
        self._thread = thread
        self._ended: Future[None] | None = None

    # On the event loop.

    def start(self, events: asyncio.AbstractEventLoop) -> None:
        self._ended = self._thread.submit(partial(self._run, events))

    def submit(self, prompts: Sequence[EncodedPrompt]) -> Reply:
        if self.failure is not None or self._stopping:
            raise _stopped(self.failure)
        num_choices = sum(prompt.params.n for prompt in prompts)
        if num_choices > self._max_open:
            words = (
                f"n: {len(prompts)} prompts and n = {prompts[0].params.n} make {num_choices} "
                f"texts; this server has room for {self._max_open}"
            )
            raise Refusal(400, words, param="n")
        if self.num_open + num_choices > self._max_open:
            words = (
                f"the queue is full ({self.num_open} texts are being written or wait); try again"
            )
            raise Refusal(429, words, code="queue_full", headers={"Retry-After": "1"})
        arrived_ns = time.perf_counter_ns()
        reply = Reply(num_choices)
        first = 0
        for prompt in prompts:
            request_id = f"http-{next(self._ids)}"
            reply.request_ids.append(request_id)
            self._open[request_id] = _Open(reply, first, prompt.params.n)
            self._inbox.append(
                partial(
                    self._engine.add_request,
                    prompt.tokens,
                    prompt.params,
                    request_id=request_id,
                    k=prompt.k,
                    objective=prompt.objective,
                    arrived_ns=arrived_ns,
                )
            )
            first += prompt.params.n
        self.num_open += num_choices
        self._wake.set()
        return reply

    def close(self, reply: Reply) -> None:
        """Aborts what is unfinished of a reply that is no longer read."""
        for request_id in reply.request_ids:
            left = self._open.pop(request_id, None)
            if left is not None:
                self.num_open -= left.num_choices
                self._inbox.append(partial(self._abort, request_id, left.num_choices))
                self._wake.set()

    async def forget(self) -> None:
        """Makes the engine drop what it keeps of earlier requests; returns when it has."""
        if self.failure is not None or self._stopping:
            raise _stopped(self.failure)
        if self._forgetting is None:  # else one that was not done yet does for this call too
            events = asyncio.get_running_loop()
            self._forgetting = events.create_future()
            self._inbox.append(partial(self._forget, events))
            self._wake.set()
        failure = await asyncio.shield(self._forgetting)
        if failure is not None:
            raise failure

    @property
    def canary_share(self) -> float:
        return self._canary.share

    def renew_canary(self, share: float | None) -> None:
        """From here on with another share; None: as the server was started."""
        self._canary = self._first_canary.renewed(share)

    async def drained(self) -> None:
        """Returns when no text is being written."""
        while self.num_open and self.failure is None:
            await asyncio.sleep(0.02)

    def stop(self) -> None:
        """Ends the thread after its present step; open replies fail."""
        self._stopping = True
        self._wake.set()
        if self._ended is not None:
            self._ended.result()
        self._fail_all()

    def _deliver(self, updates: list[Update]) -> None:
        for update in updates:
            at = self._open.get(update.request_id)
            if at is None:
                continue  # its reader has left
            if update.finish_reason is not None:
                at.num_choices -= 1
                self.num_open -= 1
                if not at.num_choices:
                    del self._open[update.request_id]
            at.reply.push(at.first_index + update.index, update)

    def _fail_all(self) -> None:
        for at in self._open.values():
            at.reply.fail(_stopped(self.failure))
        self._open.clear()
        self.num_open = 0
        self._forgotten(_stopped(self.failure))

    def _forgotten(self, failure: Refusal | None = None) -> None:
        if self._forgetting is not None:
            self._forgetting.set_result(failure)
            self._forgetting = None

    def _crashed(self, reason: str) -> None:
        self.failure = reason
        self._fail_all()
        self._on_failure()

    # In the thread.

    def _run(self, events: asyncio.AbstractEventLoop) -> None:
        try:
            while not self._stopping:
                if not self._engine.has_work and not self._inbox:
                    self._wake.wait()
                self._wake.clear()
                while self._inbox:
                    self._inbox.popleft()()
                if self._engine.has_work:
                    updates = self._step().updates
                    if updates:
                        events.call_soon_threadsafe(self._deliver, updates)
        except BaseException as error:  # whatever it is, all open replies must fail
            traceback.print_exc()
            reason = f"{type(error).__name__}: {error}"
            events.call_soon_threadsafe(self._crashed, reason)

    def _step(self) -> StepResult:
        canary = self._canary  # the event loop may put another one there
        in_slice, band = canary.in_slice, canary.band
        whom = band_limits(band) if band else EVERYBODY
        step = self._engine.step(inverted=whom if in_slice else None)
        if step.stats is not None:
            canary.observe(step.stats, step.updates)
            self._metrics.observe_step(step.stats, step.updates, in_slice=in_slice, band=band)
        return step

    def _forget(self, events: asyncio.AbstractEventLoop) -> None:
        self._engine.forget()
        events.call_soon_threadsafe(self._forgotten)

    def _abort(self, request_id: str, num_choices: int) -> None:
        self._engine.abort(request_id)
        self._metrics.observe_abort(num_choices)


def _stopped(reason: str | None) -> Refusal:
    if reason is None:
        return shutting_down()
    return Refusal(500, f"the engine stopped: {reason}", code="engine_stopped")
