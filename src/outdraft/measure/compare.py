"""Compare two servers: the same prompts in alternating blocks, until the answer is clear.

A block is one slice of the plan, sent to one arm and then to the other. The order changes from
block to block, so that a machine that warms up or slows down favours neither arm. After preset
numbers of blocks there is a look at the evidence, at levels that allow for several looks. Once
greedy texts of the two differ, the baseline gets some of its requests again, at another batch size:
that says how many of its own texts differ. Those requests count for no time.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from outdraft.acceptance import Acceptance
from outdraft.decide.evidence import Evidence
from outdraft.decide.verdict import DEFAULT_MARGIN, INCONCLUSIVE, SHIP, Verdict, decide
from outdraft.errors import BackendError, OutdraftError
from outdraft.loadgen.endpoint import Endpoint, Request, make_requests
from outdraft.loadgen.fleet import run_load
from outdraft.loadgen.load import LoadRun, Sink
from outdraft.loadgen.quality import assess_arms, assess_client
from outdraft.measure.evidence import (
    FLOOR_TEXTS,
    make_evidence,
    other_concurrency,
    text_agreement,
)
from outdraft.measure.memory import REMEMBERED, forgets, repeats_note
from outdraft.observe import Page, page_difference, read_acceptance
from outdraft.plan.findings import Pairing, Shares
from outdraft.records import Record
from outdraft.stats.percentiles import percentile_interval
from outdraft.stats.ratios import MIN_BLOCKS
from outdraft.stats.sequential import Look, Zone, plan_looks, zone
from outdraft.workload.plan import Blocks, make_blocks
from outdraft.workload.prompt import Prompt

BASELINE, CANDIDATE = "baseline", "candidate"
AGAIN = "baseline again"  # the arm of records that only their texts count of
_DEAD_BLOCKS = 2  # an arm without one answer in so many blocks is given up
_MAX_INVALID_SHARE = 0.25  # of the blocks; with more the whole comparison is invalid


@dataclass(frozen=True, slots=True)
class ComparisonSettings:
    max_requests: int = 240  # of each arm
    block_size: int = 12
    concurrency: int = 4
    mix: tuple[tuple[float, float], ...] = ((0.0, 1.0),)
    max_tokens: int | None = None
    stop_at_eos: bool = False  # said to the endpoints; here for the file
    draft: str | None = None  # of the candidate, as far as it was named; for the file
    seed: int = 0
    margin: float = DEFAULT_MARGIN
    noise_floor: float = 0.0
    num_looks: int = 4
    salt: str = ""  # of this run's prompts: its servers may remember those of an earlier one
    ttft_bound: bool = False
    lossy: bool = False  # the candidate's texts differ by design
    keep_memory: bool = False  # answers of a block may help in the next
    memory: Shares | None = None  # of the candidate, from a plan
    pairing: Pairing | None = None

    @property
    def max_blocks(self) -> int:
        return max(self.max_requests // self.block_size, MIN_BLOCKS)

    @property
    def for_evidence(self) -> dict[str, Any]:
        names = ("margin", "noise_floor", "seed", "ttft_bound", "concurrency", "memory", "pairing")
        return {**{name: getattr(self, name) for name in names}, "is_lossy": self.lossy}


@dataclass(slots=True)
class Comparison:
    """The state of a comparison, and its result."""

    records: list[Record] = field(default_factory=list)
    num_blocks: int = 0
    num_invalid: int = 0  # blocks in which the client was too slow to measure
    is_dead: bool = False  # an arm stopped answering; its earlier answers do not count
    problems: list[str] = field(default_factory=list)
    evidence: Evidence | None = None
    verdict: Verdict | None = None

    def of(self, arm: str) -> list[Record]:
        return [record for record in self.records if record.arm == arm]


def compare(
    baseline: Endpoint,
    candidate: Endpoint,
    prompts: Sequence[Prompt],
    settings: ComparisonSettings,
    *,
    notes: Sequence[str] = (),
    sink: Sink | None = None,
    on_look: Callable[[Comparison, Look], None] = lambda comparison, look: None,
) -> Comparison:
    """Runs until the verdict is clear or all requests are sent. Control-C ends it early.
    `notes`: on the prompts, said with the verdict."""
    blocks = make_blocks(
        prompts,
        size=settings.block_size,
        count=settings.max_blocks,
        mix=settings.mix,
        seed=settings.seed,
        max_tokens=settings.max_tokens,
        salt=settings.salt,
    )
    arms = {BASELINE: baseline, CANDIDATE: candidate}
    comparer = _Comparer(arms, blocks, settings, sink)
    comparer.comparison.problems += notes
    if settings.keep_memory:
        comparer.comparison.problems.append(REMEMBERED)
    else:
        comparer.forgetful.update(name for name, each in arms.items() if forgets(each.server))
    return comparer.run(on_look)


def is_clear(comparison: Comparison, settings: ComparisonSettings) -> bool:
    """Whether more blocks cannot change the answer: a decision, or a tie, of a valid run."""
    verdict, evidence = comparison.verdict, comparison.evidence
    if verdict is None or evidence is None or not evidence.is_valid:
        return False
    if verdict.decision == SHIP and evidence.p99 is None:
        # A gain of the average may hide a loss in the tail: go on where that can still be seen.
        last = plan_looks(settings.max_blocks, settings.num_looks)[-1]
        most_pairs = range(settings.block_size * last.num_blocks)
        share = (1 - evidence.part_level) / (1 - evidence.e2e.level) if evidence.e2e else 1.0
        return percentile_interval(most_pairs, 0.99, 1 - share * (1 - last.level)) is None
    if verdict.decision != INCONCLUSIVE:
        return True
    margin = max(settings.margin, settings.noise_floor)
    return evidence.e2e is not None and zone(evidence.e2e, margin) is Zone.TIE


@dataclass(frozen=True, slots=True)
class _Comparer:
    arms: Mapping[str, Endpoint]
    blocks: Blocks
    settings: ComparisonSettings
    sink: Sink | None
    forgetful: set[str] = field(default_factory=set)  # arms whose server forgets when asked
    comparison: Comparison = field(default_factory=Comparison)

    @property
    def is_same_server(self) -> bool:
        return self.arms[BASELINE].chat_url == self.arms[CANDIDATE].chat_url

    def run(self, on_look: Callable[[Comparison, Look], None]) -> Comparison:
        comparison, settings = self.comparison, self.settings
        if not self._warm_up():
            return comparison
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
            counted = read_acceptance(page_difference(self._metrics(), before))
            is_last = is_last or not self._ask_again()
            self._judge(look.level, counted)
            on_look(comparison, look)
            if is_last or is_clear(comparison, settings):
                break
        return comparison

    def _metrics(self) -> Page:
        """The candidate's counters. A server that is both arms cannot tell them apart."""
        return {} if self.is_same_server else self.arms[CANDIDATE].server.metrics()

    def _warm_up(self) -> bool:
        """False: the user stopped it."""
        for name, endpoint in self.arms.items():
            run = self._load(name, -1)
            if run.is_stopped:
                return False
            if error := _common_error(run.records):
                raise OutdraftError(
                    f"{name} at {endpoint.url}: every request of the warm-up failed ({error})"
                )
        return True

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
        part = self.blocks.requests(block, name if self.is_same_server else "")
        requests = make_requests(part, arm=name, block=block, is_warmup=block < 0)
        return self._send(name, requests, self.settings.concurrency)

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

    def _judge(self, level: float, counted: Acceptance | None) -> None:
        comparison, settings = self.comparison, self.settings
        problems, arms_are_valid = assess_arms({arm: comparison.of(arm) for arm in self.arms})
        measured = (*comparison.of(BASELINE), *comparison.of(CANDIDATE))
        repeats = repeats_note(measured, self.forgetful)
        too_slow = comparison.num_invalid > _MAX_INVALID_SHARE * comparison.num_blocks
        comparison.evidence = make_evidence(
            comparison.of(BASELINE),
            comparison.of(CANDIDATE),
            level=level,
            problems=[*problems, *comparison.problems, *filter(None, [repeats])],
            is_valid=arms_are_valid and not too_slow and not comparison.is_dead,
            same_texts=not self.is_same_server,
            text_floor=text_agreement(comparison.of(BASELINE), comparison.of(AGAIN)),
            counted=counted,
            load=f"concurrency {settings.concurrency}",
            **settings.for_evidence,
        )
        comparison.verdict = decide(comparison.evidence, margin=settings.margin)


def _common_error(records: Sequence[Record]) -> str:
    """The last error, if every request failed; empty if one succeeded."""
    if not records or any(each.ok for each in records):
        return ""
    return records[-1].error or "no reason given"
