"""Measures blocks on real engines: has one up for an arm, checks that it speculates, sends load.

An engine that takes a draft length with each request serves every draft length of a proposer from
one process; of other engines every arm has its own. `pool.py` keeps them up where that is possible.
Only one of them has requests at a time.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from math import inf

from outdraft.acceptance import Acceptance
from outdraft.backends.backend import Backend
from outdraft.backends.proof import REPEATING, speculation_mismatch
from outdraft.errors import BackendError, OutdraftError
from outdraft.loadgen.endpoint import Request, make_requests
from outdraft.loadgen.quality import assess_client
from outdraft.measure.block_size import answer_seconds, warmup_size
from outdraft.measure.cores import CoreWatch, no_watch
from outdraft.measure.gauges import Sample, poll_seconds
from outdraft.measure.main_memory import available_memory
from outdraft.measure.plateau import num_spare, surround, surround_in_time
from outdraft.measure.running import running_in
from outdraft.observe import (
    page_difference,
    read_acceptance,
    read_kv_size,
    read_step_seconds,
    read_written,
)
from outdraft.speculation import OFF, Speculation
from outdraft.tune.arm import Load, name_of, proposer_name
from outdraft.tune.cards import Cards
from outdraft.tune.engines import RunningEngine, StartEngine
from outdraft.tune.journal import AnswerTime, Block, Failure, Start
from outdraft.tune.keeping import Keeping
from outdraft.tune.options import SIDE_BY_SIDE
from outdraft.tune.pool import EnginePool
from outdraft.workload.arrivals import poisson
from outdraft.workload.plan import Blocks
from outdraft.workload.prompt import Message, Planned, Prompt

_PROOF_TOKENS = 48
_OPEN_LEAD = 0.25  # of a block's time, in which requests by the clock fill the engine, uncounted
_OPEN_SLOTS = 4  # requests at a time that show what an answer takes where they come by the clock
_KEPT = 0.5  # of the drafts that were accepted before a sleep: with fewer, something was lost


class Lab(AbstractContextManager["Lab"]):
    """The engines of a run, and the requests that are sent to them."""

    def __init__(
        self,
        backend: Backend,
        blocks: Mapping[str, Blocks],  # name of a load → its requests
        start_engine: StartEngine,
        *,
        longest: int,  # draft length that shared processes are started with
        keeps_memory: bool = False,  # answers of a block may help in the next
        keeping: Keeping = Keeping(SIDE_BY_SIDE),  # noqa: B008 (frozen)
        available_bytes: Callable[[], int | None] = available_memory,
        clock: Callable[[], float] = time.monotonic,
        cards: Cards = Cards(),  # noqa: B008 (frozen)
        other_starts: Sequence[StartEngine] = (),  # on each card but the first
        watch: Callable[[], CoreWatch] = no_watch,  # whether others use the machine
    ) -> None:
        supported = backend.capabilities()
        self._backend = backend
        self._shares_process = supported.shares_process
        self._forget_paths = {} if keeps_memory else supported.forget_paths
        # After a block. SGLang's makes the engine forget: then its gauges have to do.
        self._idle_path = "" if keeps_memory else supported.idle_path
        self.blocks = blocks
        self._starts = (start_engine, *other_starts)  # by card
        self._cards = cards
        self._offs = {self._off_key(card): card for card in (0, *cards.others)}
        self._longest = longest
        self._clock = clock
        self._watch = watch
        self._pool = EnginePool(
            keeping,
            supported.sleep,
            available_bytes,
            self._offs,
            self._card_of_key,
            supported.idle_path,
        )
        self._step_seconds: dict[str, dict[int, float]] = {}
        self._proofs: dict[str, Acceptance] = {}  # of engines that have not slept yet
        self._kv_sizes: dict[str, int | None] = {}
        self._broken: dict[str, str] = {}  # engines that could not be started, and why
        self._load_s: dict[str, float] = {}  # name of a plan → what its last block took
        self._order: list[str] = []  # keys of engines, the last started last
        self._renews_off = keeping.how == SIDE_BY_SIDE and not self._shares_process
        self._starts_ahead = keeping.how == SIDE_BY_SIDE

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self._pool.close()

    def prepare(self, load: Load, arms: Sequence[Speculation]) -> Start | None:
        """Starts an engine of the arms that are measured next, in this order, where it fits beside
        the others. None where there is none to start.

        Arms that are compared are then measured without starts in between, during which the
        machine may change. Off is started last: of two equal processes the one that was started
        first can be some percent slower, which would be taken for a speedup.
        """
        for arm in sorted(arms, key=lambda each: each.is_off) if self._starts_ahead else ():
            key = self._key(arm)
            if key in self._pool or key in self._broken or self._starts_anew(arm):
                continue
            if not self._pool.has_room(key):
                break
            began = self._clock()
            with suppress(OutdraftError):  # the arm's block will say so
                self._engine(arm, key)
            return Start(load.name, name_of(arm), self._clock() - began)
        return None

    def measure_answer(self, load: Load) -> AnswerTime:
        """What an answer takes without speculation."""
        began, is_new = self._clock(), self._key(OFF) not in self._pool
        engine = self._engine(OFF, self._key(OFF))
        start_s = self._clock() - began if is_new else 0.0
        spare = self.blocks[load.name].requests(-1)
        concurrency = load.concurrency or _OPEN_SLOTS
        planned = [spare[at % len(spare)] for at in range(warmup_size(concurrency))]
        run = engine.send(make_requests(planned, is_warmup=True), concurrency, None)
        seconds = answer_seconds(run.records)
        if seconds is None:
            error = run.records[-1].error if run.records else "nothing was sent"
            raise BackendError(f"off answers no request at {load.name} ({error})")
        return AnswerTime(load.name, seconds, self._clock() - began, start_s)

    def measure(self, load: Load, arm: Speculation, block: int) -> Block | Failure:
        """One block, or why there is none: an engine's failure is a result of its arm."""
        key = self._key(arm, load)
        began, start_s = self._clock(), 0.0
        try:
            if self._renews_off and arm.is_off and self._is_older(key, load.subject):
                self._pool.drop(key)
            if self._starts_anew(arm):
                self._pool.drop(key)
            is_new = self._shares_process or key not in self._pool
            try:
                engine = self._forgetful_engine(arm, key)
            finally:
                start_s = self._clock() - began if is_new else 0.0
            measured = self._run(engine, load, arm, block)
            reason = engine.died()
            if reason is None and not any(each.ok for each in measured.records):
                error = measured.records[-1].error if measured.records else "nothing was sent"
                reason = f"every request failed ({error})"
        except OutdraftError as error:
            reason = str(error)
        if reason is not None:
            self._pool.drop(key)
            duration_s = self._clock() - began
            return Failure(load.name, name_of(arm), reason, duration_s, start_s)
        return replace(measured, duration_s=self._clock() - began, start_s=start_s)

    def _is_older(self, key: str, other: str) -> bool:
        """Whether it was started before the other one: of two equal processes side by side the
        older one can be some percent slower, which would be taken for a speedup."""
        order = self._order
        return key in order and other in order and order.index(key) < order.index(other)

    def _starts_anew(self, arm: Speculation) -> bool:
        """Before each block: that is how its engine forgets."""
        return self._forget_paths.get(arm.method) == ""

    def _forgetful_engine(self, arm: Speculation, key: str) -> RunningEngine:
        """An arm's engine, without the answers of earlier blocks."""
        engine = self._engine(arm, key)
        if path := self._forget_paths.get(arm.method):
            engine.forget(path)
        return engine

    def _key(self, arm: Speculation, load: Load | None = None) -> str:
        """Arms with the same key are served by the same process. Off has one on each card, and is
        measured on that of the load, or of the arm that the load is about."""
        if arm.is_off and load is not None:
            return self._off_key(load.card or self._cards.of_name(load.subject))
        return proposer_name(arm) if self._shares_process else name_of(arm)

    def _off_key(self, card: int) -> str:
        return f"{name_of(OFF)} on card {card + 1}" if card else name_of(OFF)

    def _card_of_key(self, key: str) -> int:
        return self._offs[key] if key in self._offs else self._cards.of_name(key)

    def _names_k(self, arm: Speculation) -> bool:
        """Whether each request names the draft length; a schedule is the engine's own."""
        return self._shares_process and not arm.is_off and not arm.schedule

    def _engine(self, arm: Speculation, key: str) -> RunningEngine:
        if key in self._broken:  # the same command would fail again
            raise OutdraftError(self._broken[key])
        try:
            return self._pool.get(key, lambda: self._start(key, arm), self._check_woken(key, arm))
        except OutdraftError as error:
            self._pool.drop(key)  # it may be up without doing what it should
            self._broken[key] = str(error)
            raise

    def _start(self, key: str, arm: Speculation) -> RunningEngine:
        speculation = self._started_with(arm)
        engine = self._starts[self._card_of_key(key)](speculation, key)
        try:
            self._order = [*(each for each in self._order if each != key), key]
            self._proofs[key] = self._prove(engine, speculation)
            page = engine.metrics()
            self._step_seconds[key] = read_step_seconds(page)
            self._kv_sizes[key] = read_kv_size(page)
        except BaseException:
            engine.stop()
            raise
        return engine

    def _started_with(self, arm: Speculation) -> Speculation:
        return replace(arm, k=self._longest) if self._names_k(arm) else arm

    def _check_woken(self, key: str, arm: Speculation) -> Callable[[RunningEngine], None]:
        def check(engine: RunningEngine) -> None:
            """Each time: with another KV cache it is no longer what was measured. After its first
            sleep: weights of a draft that were lost make no error, only drafts that nobody
            accepts."""
            size, size_before = read_kv_size(engine.metrics()), self._kv_sizes[key]
            if size is not None and size_before is not None and size != size_before:
                raise BackendError(
                    f"its KV cache has a size of {size} after its sleep, {size_before} before it"
                )
            before = self._proofs.pop(key, None)
            if before is None:
                return
            after = self._prove(engine, self._started_with(arm))
            if after.num_accepted_tokens < _KEPT * before.num_accepted_tokens:
                raise BackendError(
                    f"{after.num_accepted_tokens} draft tokens were accepted after its sleep, "
                    f"{before.num_accepted_tokens} before it"
                )

        return check

    def _prove(self, engine: RunningEngine, speculation: Speculation) -> Acceptance:
        """Sends a request that every proposer can draft for. The counters must show drafts, or none
        where speculation is off."""
        if not speculation.is_off and speculation.k_at(1) == 0:
            return Acceptance()  # a schedule that is off for one request: nothing can be seen
        before = engine.metrics()
        prompt = Prompt("warm-up", "warm-up", (Message("user", REPEATING),), _PROOF_TOKENS)
        planned = Planned(prompt, 0.0, _PROOF_TOKENS, seed=0)
        run = engine.send(make_requests([planned], is_warmup=True), 1, None)
        if not any(each.ok for each in run.records):
            raise OutdraftError(f"the first request failed ({run.records[-1].error})")
        after = engine.metrics()
        reason = speculation_mismatch(self._backend, speculation, before, after)
        if reason is not None:
            raise OutdraftError(reason)
        return read_acceptance(page_difference(after, before)) or Acceptance()

    def _run(self, engine: RunningEngine, load: Load, arm: Speculation, block: int) -> Block:
        requests = self._requests(load, arm, block)
        before, k = engine.metrics(), arm.k if self._names_k(arm) else None
        # Leads make a plateau; without one nobody can say how many requests should run.
        is_polled = load.concurrency is not None and any(each.is_warmup for each in requests)
        every_s = poll_seconds(self._load_s.get(load.plan_name, inf))
        polled = engine.polled(every_s) if is_polled else nullcontext(list[Sample]())
        began = self._clock()
        with self._watch() as cores, polled as samples:
            run = engine.send(requests, load.concurrency, k)
        self._load_s[load.plan_name] = self._clock() - began
        if any(each.is_filler for each in requests):
            engine.wait_until_idle(self._idle_path)
        quality = assess_client(run)
        counters = page_difference(engine.metrics(), before)
        return Block(
            load.name,
            name_of(arm),
            block,
            duration_s=0.0,  # the caller knows
            records=run.records,
            problems=() if quality is None or quality.is_valid else quality.problems,
            counted=read_acceptance(counters),
            written=read_written(counters, len(run.records) + run.num_fillers),
            step_seconds=self._step_seconds[self._key(arm, load)],
            busy=cores.words,
            running=running_in(samples, run.records),
        )

    def _requests(self, load: Load, arm: Speculation, block: int) -> list[Request]:
        """Those that count, and those that keep the other slots busy meanwhile."""
        blocks, concurrency = self.blocks[load.plan_name], load.concurrency
        # Off meets no request of the final again that it has from the final of another arm, and
        # no arm one of a block that is measured again.
        salt = f"{load.subject} again" if load.is_again else load.subject
        plan = blocks.requests(block, salt)
        if load.rate is not None:
            times = poisson(load.rate, len(plan), block)
            plan = [replace(each, offset_ns=at) for each, at in zip(plan, times, strict=True)]
        requests = make_requests(plan, arm=name_of(arm), block=block)
        if load.rate is not None:
            lead_ns = round(_OPEN_LEAD * len(requests) / load.rate * 1e9)
            return surround_in_time(requests, blocks.spare(block, len(requests)), lead_ns)
        if not self._shares_process:
            spare = blocks.spare(block, num_spare(concurrency), salt)
            return surround(requests, spare, concurrency)
        if (concurrency or 1) > 1:
            # Without them the last requests of a faster arm would have the machine for themselves.
            # Blocks are short here, and take turns: leads would cost more than they tell.
            fillers = make_requests(blocks.requests(-1))
            requests += [replace(each, is_filler=True) for each in fillers]
        return requests
