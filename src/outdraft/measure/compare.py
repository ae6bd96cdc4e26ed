"""Compare two servers: the same prompts in alternating blocks, until the answer is clear.

A block is one slice of the plan, sent to one arm and then to the other, with requests before and
after it that keep the load up (`plateau`). Its size follows from the speed of the warm-up
(`block_size`). The order changes from block to block, so that a machine that warms up or slows down
favours neither arm. After preset
numbers of blocks there is a look at the evidence, at levels that allow for several looks. Once
greedy texts of the two differ, the baseline gets some of its requests again, at another batch size:
that says how many of its own texts differ. Those requests count for no time.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from outdraft.decide.verdict import INCONCLUSIVE, SHIP, decide
from outdraft.errors import BackendError, OutdraftError
from outdraft.loadgen.endpoint import Endpoint, Request, make_requests
from outdraft.loadgen.fleet import run_load
from outdraft.loadgen.load import LoadRun, Sink
from outdraft.loadgen.quality import assess_arms, assess_client
from outdraft.measure.block_size import PLATEAU_S, answer_seconds, warmup_size
from outdraft.measure.comparison import Comparison, ComparisonSettings
from outdraft.measure.evidence import (
    FLOOR_TEXTS,
    make_evidence,
    other_concurrency,
    text_agreement,
)
from outdraft.measure.gauges import (
    Sample,
    poll_seconds,
    polled_gauges,
    wait_until_idle,
    while_counting,
)
from outdraft.measure.gpus import polled_gpus
from outdraft.measure.memory import REMEMBERED, forgets, repeats_note
from outdraft.measure.plateau import num_spare, surround
from outdraft.measure.running import running_in
from outdraft.observe import Page, page_difference, read_acceptance, read_written
from outdraft.records import Record
from outdraft.stats.percentiles import percentile_interval
from outdraft.stats.sequential import Look, Zone, plan_looks, zone
from outdraft.workload.plan import Blocks, choose_balanced, make_blocks
from outdraft.workload.prompt import Prompt

BASELINE, CANDIDATE = "baseline", "candidate"
AGAIN = "baseline again"  # the arm of records that only their texts count of
_DEAD_BLOCKS = 2  # an arm without one answer in so many blocks is given up
_MAX_INVALID_SHARE = 0.25  # of the blocks; with more the whole comparison is invalid


def compare(
    baseline: Endpoint,
    candidate: Endpoint,
    prompts: Sequence[Prompt],
    settings: ComparisonSettings,
    *,
    notes: Sequence[str] = (),
    gpu_metrics: Sequence[str | None] = (None, None),
    sink: Sink | None = None,
    on_look: Callable[[Comparison, Look], None] = lambda comparison, look: None,
) -> Comparison:
    """Runs until the verdict is clear or all requests are sent. Control-C ends it early.
    `notes`: on the prompts, said with the verdict. `gpu_metrics`: a page about the GPUs of each."""
    arms = {BASELINE: baseline, CANDIDATE: candidate}
    comparer = _Comparer(arms, prompts, sink, Comparison(settings), candidate.server.method())
    comparer.comparison.problems += notes
    comparer.gpu_metrics = dict(zip(arms, gpu_metrics, strict=True))
    if settings.keep_memory:
        comparer.comparison.problems.append(REMEMBERED)
    else:
        comparer.forgetful.update(name for name, each in arms.items() if forgets(each.server))
    return comparer.run(on_look)


def is_clear(comparison: Comparison) -> bool:
    """Whether more blocks cannot change the answer: a decision, or a tie, of a valid run."""
    verdict, evidence, settings = comparison.verdict, comparison.evidence, comparison.settings
    if verdict is None or evidence is None or not evidence.is_valid:
        return False
    if verdict.decision == SHIP and evidence.p99 is None:
        # A gain of the average may hide a loss in the tail: go on where that can still be seen.
        last = plan_looks(settings.max_blocks, settings.num_looks)[-1]
        most_pairs = range((settings.block_size or 0) * last.num_blocks)
        share = (1 - evidence.part_level) / (1 - evidence.e2e.level) if evidence.e2e else 1.0
        return percentile_interval(most_pairs, 0.99, 1 - share * (1 - last.level)) is None
    if verdict.decision != INCONCLUSIVE:
        return True
    margin = max(settings.margin, settings.noise_floor)
    return evidence.e2e is not None and zone(evidence.e2e, margin) is Zone.TIE


@dataclass(slots=True)
class _Comparer:
    arms: Mapping[str, Endpoint]
    prompts: Sequence[Prompt]
    sink: Sink | None
    comparison: Comparison
    method: str | None = None  # of the candidate, as far as it says so
    gpu_metrics: Mapping[str, str | None] = field(default_factory=dict)  # pages about their GPUs
    forgetful: set[str] = field(default_factory=set)  # arms whose server forgets when asked
    answer_s: float = PLATEAU_S  # what an answer takes in the faster arm, once that is known
    blocks: Blocks = field(init=False)

    @property
    def settings(self) -> ComparisonSettings:
        return self.comparison.settings

    @property
    def is_same_server(self) -> bool:
        return self.arms[BASELINE].answer_url == self.arms[CANDIDATE].answer_url

    def run(self, on_look: Callable[[Comparison, Look], None]) -> Comparison:
        comparison = self.comparison
        if not self._warm_up():
            return comparison
        settings = self.settings
        self.blocks = self._make_blocks(self.prompts, settings.block_size or 0, settings.max_blocks)
        before = self._metrics()
        looks = plan_looks(settings.max_blocks, settings.num_looks)
        for block in range(settings.max_blocks):
            is_last = not self._run_block(block)
            comparison.num_blocks = block + 1
            if problem := self._dead_arm(block):
                comparison.problems.append(problem)
                comparison.is_dead = is_last = True
            look = next(each for each in looks if each.num_blocks > block)
            if not is_last and look.num_blocks > block + 1:
                continue
            counters = page_difference(self._metrics(), before)
            is_last = is_last or not self._ask_again()
            self._judge(look.level, counters)
            on_look(comparison, look)
            if is_last or is_clear(comparison):
                break
        return comparison

    def _metrics(self) -> Page:
        """The candidate's counters. A server that is both arms cannot tell them apart."""
        return {} if self.is_same_server else self.arms[CANDIDATE].server.metrics()

    def _warm_up(self) -> bool:
        """Sets the size of blocks, if it was not given. False: the user stopped it."""
        settings = self.settings
        size = settings.block_size or warmup_size(settings.concurrency)
        # The last prompts of the order in which blocks take them: those that they hardly reach.
        order = choose_balanced(self.prompts, len(self.prompts), settings.seed)
        self.blocks = self._make_blocks(order[-size:], size, 1)
        times = []
        for name, endpoint in self.arms.items():
            run = self._load(name, -1)
            if run.is_stopped:
                return False
            if error := _common_error(run.records):
                raise OutdraftError(
                    f"{name} at {endpoint.url}: every request of the warm-up failed ({error})"
                )
            times.append(answer_seconds(run.records))
        self.answer_s = min((each for each in times if each is not None), default=PLATEAU_S)
        if settings.block_size is None:
            self.comparison.settings, note = settings.sized(self.answer_s)
            self.comparison.problems += filter(None, [note])
        return True

    def _make_blocks(self, prompts: Sequence[Prompt], size: int, count: int) -> Blocks:
        names = ("mix", "seed", "max_tokens", "salt")
        options = {name: getattr(self.settings, name) for name in names}
        return make_blocks(prompts, size=size, count=count, **options)

    def _run_block(self, block: int) -> bool:
        """False: the user stopped it."""
        comparison, is_valid = self.comparison, True
        names = [BASELINE, CANDIDATE] if block % 2 == 0 else [CANDIDATE, BASELINE]
        for name in names:
            run = self._load(name, block)
            quality = assess_client(run)
            if quality is not None:
                new = [each for each in quality.problems if each not in comparison.problems]
                comparison.problems += new
                is_valid = is_valid and quality.is_valid
            if run.is_stopped:
                comparison.problems.append(
                    f"stopped in block {block + 1} of {self.settings.max_blocks}"
                )
                return False
        comparison.num_invalid += not is_valid
        return True

    def _ask_again(self) -> bool:
        """Greedy requests of the first blocks once more, if texts differ and this was not done.
        False: the user stopped it."""
        comparison, concurrency = self.comparison, self.settings.concurrency
        if self.is_same_server or self.settings.lossy or comparison.of(AGAIN):
            return True
        texts = text_agreement(comparison.of(BASELINE), comparison.of(CANDIDATE))
        if texts is None or not texts.first_differences:
            return True
        greedy = [
            request
            for block in range(comparison.num_blocks)
            for request in make_requests(self.blocks.requests(block), arm=AGAIN, block=block)
            if request.planned.temperature == 0
        ][:FLOOR_TEXTS]
        run = self._send(BASELINE, greedy, other_concurrency(concurrency))
        if run.is_stopped:
            comparison.problems.append("stopped while the baseline was asked again for its texts")
        return not run.is_stopped

    def _load(self, name: str, block: int) -> LoadRun:
        concurrency, server = self.settings.concurrency, self.arms[name].server
        mark = name if self.is_same_server else ""
        part = self.blocks.requests(block, mark)
        requests = make_requests(part, arm=name, block=block, is_warmup=block < 0)
        spare = self.blocks.spare(block, num_spare(concurrency), mark)
        every_s = poll_seconds(len(part) * self.answer_s / concurrency)
        page = self.gpu_metrics.get(name)
        gpus: AbstractContextManager[list[Sample]]
        gpus = nullcontext([]) if page is None else polled_gpus(server.url, page)
        with polled_gauges(server, every_s) as samples, gpus as of_gpus:
            run = self._send(name, surround(requests, spare, concurrency), concurrency)
        if block >= 0:
            self.comparison.gpus.setdefault(name, []).extend(while_counting(of_gpus, run.records))
        if block >= 0 and (running := running_in(samples, run.records)) is not None:
            self.comparison.running.setdefault(name, []).append(running)
        if concurrency > 1:
            wait_until_idle(server)
        return run

    def _send(self, name: str, requests: Sequence[Request], concurrency: int) -> LoadRun:
        if name in self.forgetful:
            try:
                self.arms[name].server.forget()
            except BackendError:  # from here on, prompts that it met before count as repeated
                self.forgetful.discard(name)
        run = run_load(self.arms[name], requests, concurrency=concurrency, sink=self.sink)
        self.comparison.records += run.records
        return run

    def _dead_arm(self, block: int) -> str:
        """A sentence about an arm that stopped answering: from now on each of its requests would
        cost a timeout."""
        for arm in self.arms:
            last = [each for each in self.comparison.of(arm) if each.block > block - _DEAD_BLOCKS]
            blocks = {each.block for each in last if not each.is_warmup}
            if len(blocks) == _DEAD_BLOCKS and (error := _common_error(last)):
                return f"{arm} answered nothing in {_DEAD_BLOCKS} blocks ({error}): given up"
        return ""

    def _judge(self, level: float, counters: Page) -> None:
        comparison, settings = self.comparison, self.settings
        problems, arms_are_valid = assess_arms({arm: comparison.of(arm) for arm in self.arms})
        measured = (*comparison.of(BASELINE), *comparison.of(CANDIDATE))
        repeats = repeats_note(measured, self.forgetful)
        too_slow = comparison.num_invalid > _MAX_INVALID_SHARE * comparison.num_blocks
        comparison.evidence = make_evidence(
            comparison.of(BASELINE),
            comparison.of(CANDIDATE),
            level=level,
            problems=[*problems, *comparison.problems, *comparison.short_loads,
                      *filter(None, [repeats])],
            is_valid=arms_are_valid and not too_slow and not comparison.is_dead,
            same_texts=not self.is_same_server,
            text_floor=text_agreement(comparison.of(BASELINE), comparison.of(AGAIN)),
            counted=read_acceptance(counters),
            written=read_written(counters),
            method=self.method,
            load=f"concurrency {settings.concurrency}",
            has_idle_slots=False,
            **settings.for_evidence,
        )  # fmt: skip
        comparison.verdict = decide(comparison.evidence, margin=settings.margin)


def _common_error(records: Sequence[Record]) -> str:
    """The last error, if every request failed; empty if one succeeded."""
    if not records or any(each.ok for each in records):
        return ""
    return records[-1].error or "no reason given"
