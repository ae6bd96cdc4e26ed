"""The scheduler in a world without a model: any order of events leaves the pool whole."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from outdraft.engine.kv_cache import BlockPool
from outdraft.engine.scheduler import Scheduler
from outdraft.engine.sequence import SamplingParams, Sequence, Status
from outdraft.engine.step import Step

SIZE = 4
NUM_BLOCKS = 7  # and the scratch block
BUDGET = 9
MAX_SEQS = 3
MAX_LENGTH = NUM_BLOCKS * SIZE  # what a lone sequence can have, as the engine sees to


def sequence(number: int, tokens: list[int], max_tokens: int = 6) -> Sequence:
    params = SamplingParams(max_tokens=max_tokens)
    return Sequence(number, "r", 0, list(tokens), len(tokens), params, 0, frozenset())


def is_over(one: Sequence) -> bool:
    return one.num_output_tokens >= one.params.max_tokens or len(one) >= MAX_LENGTH


def finish(scheduler: Scheduler, one: Sequence) -> None:
    one.status = Status.FINISHED
    scheduler.remove(one)


def do_step(scheduler: Scheduler, step: Step, accepted: list[int] | None = None) -> None:
    """What the engine does with a schedule; `accepted` bounds the drafts accepted by each."""
    limits = accepted or [0] * len(step.drawing)
    emitted = [
        [*segment.drafts[:limit], 1] for segment, limit in zip(step.drawing, limits, strict=True)
    ]
    step.accept(emitted)
    for segment, tokens in zip(step.drawing, emitted, strict=True):
        one = segment.sequence
        for token in tokens:
            one.tokens.append(token)
            if is_over(one):
                one.status = Status.FINISHED
                break
    scheduler.finish(step)


class SchedulerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(NUM_BLOCKS + 1, SIZE)
        self.scheduler = Scheduler(self.pool, max_num_seqs=MAX_SEQS, max_num_batched_tokens=BUDGET)
        self.all: list[Sequence] = []

    @property
    def alive(self) -> list[Sequence]:
        return [one for one in self.all if not one.is_finished]

    @rule(tokens=st.lists(st.integers(0, 1), min_size=1, max_size=20), length=st.integers(1, 12))
    def add(self, tokens: list[int], length: int) -> None:
        one = sequence(len(self.all), tokens, length)
        self.all.append(one)
        self.scheduler.add(one)

    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        before = {one.id: len(one) for one in self.alive}
        planned = self.scheduler.schedule()
        works = planned.segments
        assert len({work.sequence.id for work in works}) == len(works)
        for work in works:
            one = work.sequence
            assert one.status is Status.RUNNING
            assert 1 <= work.num_tokens <= one.num_uncomputed
            if work.reaches_end and one.num_output_tokens:
                drafts = data.draw(st.lists(st.integers(0, 1), max_size=6))
                self.scheduler.attach(work, drafts)
                assert work.drafts == drafts[: len(work.drafts)]
            computed = one.num_computed + work.num_tokens + len(work.drafts)
            assert len(one.table) == self.pool.blocks_for(computed) or work.drafts == []
            assert len(one.table) * SIZE >= computed
        assert sum(work.num_tokens + len(work.drafts) for work in works) <= BUDGET
        assert self.scheduler.num_running <= MAX_SEQS
        self.whole()
        do_step(self.scheduler, planned, [data.draw(st.integers(0, 6)) for _ in planned.drawing])
        if works:
            assert any(
                w.num_tokens < before[w.sequence.id] or len(w.sequence) > before[w.sequence.id]
                for w in works
            )

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        one = data.draw(st.sampled_from(self.alive))
        finish(self.scheduler, one)
        assert one.table == []
        self.scheduler.remove(one)  # once more does no harm

    @invariant()
    def whole(self) -> None:
        self.pool.check(self.scheduler.tables)
        assert self.scheduler.num_running + self.scheduler.num_waiting == len(self.alive)
        for one in self.alive:
            assert one.num_computed < len(one)
            assert one.num_cached < one.num_prompt_tokens
            if one.status is Status.WAITING:
                assert (one.table, one.num_computed) == ([], 0)
            assert len(one.block_hashes) <= len(one.table)

    def teardown(self) -> None:
        """Whatever happened before, everybody comes to an end and every block comes home."""
        for _ in range(400):
            do_step(self.scheduler, self.scheduler.schedule())
            self.whole()
            if not self.alive:
                break
        assert not self.alive
        assert self.pool.num_used == 0


TestScheduler = SchedulerMachine.TestCase
TestScheduler.settings = settings(
    max_examples=150,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


def step(scheduler: Scheduler) -> list[tuple[int, int]]:
    """One step without drafts: (sequence id, tokens computed)."""
    planned = scheduler.schedule()
    shares = [(segment.sequence.id, segment.num_tokens) for segment in planned.segments]
    do_step(scheduler, planned)
    return shares


def test_prompts_go_in_chunks_behind_those_that_decode() -> None:
    scheduler = Scheduler(BlockPool(20, SIZE), max_num_seqs=4, max_num_batched_tokens=8)
    scheduler.add(sequence(0, [1, 2, 3]))
    assert step(scheduler) == [(0, 3)]
    scheduler.add(sequence(1, [4] * 12))
    assert step(scheduler) == [(0, 1), (1, 7)]
    assert step(scheduler) == [(0, 1), (1, 5)]
    assert step(scheduler) == [(0, 1), (1, 1)]


def test_no_more_than_max_num_seqs_run() -> None:
    scheduler = Scheduler(BlockPool(20, SIZE), max_num_seqs=2, max_num_batched_tokens=50)
    for number in range(3):
        scheduler.add(sequence(number, [number]))
    assert step(scheduler) == [(0, 1), (1, 1)]
    assert (scheduler.num_running, scheduler.num_waiting) == (2, 1)


def test_a_known_beginning_is_not_computed_again() -> None:
    pool = BlockPool(20, SIZE)
    scheduler = Scheduler(pool, max_num_seqs=4, max_num_batched_tokens=50)
    first, second, same = (sequence(n, [5] * 8 + [n]) for n in range(3))
    same.tokens[-1:] = []
    same.num_prompt_tokens = 8
    scheduler.add(first)
    step(scheduler)
    scheduler.add(second)
    assert step(scheduler) == [(0, 1), (1, 1)]
    assert second.num_cached == 8
    assert second.table[:2] == first.table[:2]
    scheduler.add(same)  # known to the last token: that one is computed for its logits
    assert step(scheduler)[-1] == (2, 4)
    pool.check(scheduler.tables)


def test_the_latest_comer_is_sent_back_and_comes_again() -> None:
    pool = BlockPool(7, SIZE)
    scheduler = Scheduler(pool, max_num_seqs=4, max_num_batched_tokens=50)
    old, new = sequence(0, [1] * 8, max_tokens=8), sequence(1, [2] * 7, max_tokens=8)
    scheduler.add(old)
    step(scheduler)
    scheduler.add(new)
    for _ in range(20):
        step(scheduler)
        pool.check(scheduler.tables)
        if new.num_preemptions:
            break
    written = list(new.tokens)
    assert (new.status, new.table, old.num_preemptions) == (Status.WAITING, [], 0)
    for _ in range(20):
        step(scheduler)
        pool.check(scheduler.tables)
    assert new.tokens[: len(written)] == written
    assert old.is_finished
    assert new.num_output_tokens == 8
    assert new.num_cached == 0  # of the prompt, when it first came: not its own output
    assert pool.num_used == 0


def test_drafts_take_what_tokens_and_blocks_are_left() -> None:
    scheduler = Scheduler(BlockPool(20, SIZE), max_num_seqs=4, max_num_batched_tokens=4)
    scheduler.add(sequence(0, [1, 2, 3]))
    step(scheduler)
    [work] = scheduler.schedule().segments
    scheduler.attach(work, [7, 8, 9, 10, 11])
    assert work.drafts == [7, 8, 9]  # 4 tokens a step, one is its own

    scheduler = Scheduler(BlockPool(2, SIZE), max_num_seqs=4, max_num_batched_tokens=50)
    scheduler.add(sequence(0, [1, 2]))
    step(scheduler)
    [work] = scheduler.schedule().segments
    scheduler.attach(work, [7, 8, 9])
    assert work.drafts == [7]  # 3 of its one block's 4 places are its own


def test_refused_drafts_give_their_blocks_back() -> None:
    pool = BlockPool(20, SIZE)
    scheduler = Scheduler(pool, max_num_seqs=4, max_num_batched_tokens=50)
    one = sequence(0, [1, 2, 3])
    scheduler.add(one)
    step(scheduler)
    planned = scheduler.schedule()
    scheduler.attach(planned.segments[0], [7] * 8)
    assert pool.num_used == 3
    planned.accept([[7, 1]])
    one.tokens += [7, 1]
    scheduler.finish(planned)
    assert (pool.num_used, one.num_computed) == (2, 5)


def test_only_tokens_of_the_text_are_published() -> None:
    """A text that ends within its drafts: what was computed behind its end is nobody's."""
    pool = BlockPool(20, SIZE)
    scheduler = Scheduler(pool, max_num_seqs=4, max_num_batched_tokens=50)
    one = sequence(0, [1, 2, 3])
    scheduler.add(one)
    step(scheduler)
    planned = scheduler.schedule()
    scheduler.attach(planned.segments[0], [7, 7, 7, 7, 7])
    planned.accept([[7, 7, 7, 7, 7, 1]])
    one.tokens.append(7)  # and here it stopped: 5 tokens, 9 computed
    scheduler.finish(planned)
    assert one.num_computed == 9
    assert len(one.block_hashes) == 1
