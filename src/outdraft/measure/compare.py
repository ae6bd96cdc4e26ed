"""Two servers against each other: the same prompts in alternating blocks, until it is clear.

A block is one slice of the plan sent to one arm and then to the other; who goes first changes
from block to block, so that a machine that warms up or slows down favours nobody. After preset
numbers of blocks the evidence is looked at, with levels that allow for looking more than once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from outdraft.decide.evidence import Evidence, Memory, Pairing
from outdraft.decide.verdict import DEFAULT_MARGIN, INCONCLUSIVE, SHIP, Verdict, decide
from outdraft.errors import OutdraftError
from outdraft.loadgen.endpoint import Endpoint
from outdraft.loadgen.fleet import run_load
from outdraft.loadgen.load import Sink
from outdraft.loadgen.quality import judge
from outdraft.loadgen.request import requests_of
from outdraft.measure.blocks import Blocks, make_blocks
from outdraft.measure.evidence import make_evidence
from outdraft.measure.failures import failures_of
from outdraft.measure.server import metrics_of
from outdraft.metrics_page import difference, drafted
from outdraft.records import AcceptanceCounts, Record
from outdraft.stats import MIN_BLOCKS, Look, Zone, percentile_interval, plan_looks, zone
from outdraft.workload.prompt import Prompt

BASELINE, CANDIDATE = "baseline", "candidate"
_DEAD_BLOCKS = 2  # in a row without a single answer
_MAX_INVALID_SHARE = 0.25  # of blocks; with more the whole comparison is invalid


@dataclass(frozen=True, slots=True)
class Settings:
    max_requests: int = 240  # of each arm
    block_size: int = 12
    concurrency: int = 4
    mix: tuple[tuple[float, float], ...] = ((0.0, 1.0),)
    max_tokens: int | None = None
    seed: int = 0
    margin: float = DEFAULT_MARGIN
    noise_floor: float = 0.0
    num_looks: int = 4
    ttft_bound: bool = False
    memory: Memory | None = None  # of the candidate, from a plan
    pairing: Pairing | None = None

    @property
    def max_blocks(self) -> int:
        return max(self.max_requests // self.block_size, MIN_BLOCKS)


@dataclass(slots=True)
class Outcome:
    """What a comparison has found so far."""

    records: list[Record] = field(default_factory=list)
    num_blocks: int = 0
    num_invalid: int = 0  # blocks in which the client was not fit to measure
    is_dead: bool = False  # an arm stopped answering: what came before does not speak for it
    problems: list[str] = field(default_factory=list)
    evidence: Evidence | None = None
    verdict: Verdict | None = None

    def of(self, arm: str) -> list[Record]:
        return [record for record in self.records if record.arm == arm]


def compare(
    baseline: Endpoint,
    candidate: Endpoint,
    prompts: Sequence[Prompt],
    settings: Settings,
    *,
    sink: Sink | None = None,
    on_look: Callable[[Outcome, Look], None] = lambda outcome, look: None,
) -> Outcome:
    """Runs until the verdict is clear or the requests are spent. Control-C ends it early."""
    arms = {BASELINE: baseline, CANDIDATE: candidate}
    same_server = baseline.chat_url == candidate.chat_url
    looks = plan_looks(settings.max_blocks, settings.num_looks)
    blocks = make_blocks(
        prompts,
        size=settings.block_size,
        count=settings.max_blocks,
        mix=settings.mix,
        seed=settings.seed,
        max_tokens=settings.max_tokens,
    )
    outcome = Outcome()
    for name, endpoint in arms.items():
        warmup = blocks.requests(-1, name if same_server else "")
        requests = requests_of(warmup, arm=name, block=-1, is_warmup=True)
        run = run_load(endpoint, requests, concurrency=settings.concurrency, sink=sink)
        outcome.records += run.records
        if run.is_stopped:
            return outcome
        if failed := _all_failed(run.records):
            raise OutdraftError(
                f"{name} at {endpoint.url}: every request of the warm-up failed ({failed})"
            )
    before = {} if same_server else metrics_of(candidate)
    for block in range(settings.max_blocks):
        order = list(arms) if block % 2 == 0 else list(arms)[::-1]
        stopped = _run_block(outcome, arms, order, blocks, settings, block, same_server, sink)
        outcome.num_blocks = block + 1
        look = next(each for each in looks if each.num_blocks > block)  # stopped: it comes early
        if dead := _dead(outcome, block):
            outcome.problems.append(dead)
            outcome.is_dead = stopped = True
        if not stopped and look.num_blocks > block + 1:
            continue
        counted = None if same_server else drafted(difference(metrics_of(candidate), before))
        _judge(outcome, settings, look.level, same_texts=not same_server, counted=counted)
        on_look(outcome, look)
        if stopped or is_clear(outcome, settings):
            break
    return outcome


def is_clear(outcome: Outcome, settings: Settings) -> bool:
    """Nothing more to learn: a decision, or a tie. An invalid run is no answer."""
    verdict, evidence = outcome.verdict, outcome.evidence
    if verdict is None or evidence is None or not evidence.is_valid:
        return False
    if verdict.decision == SHIP and evidence.p99 is None:
        # A gain in the middle may hide a loss at the end: go on where that can still be seen.
        last = plan_looks(settings.max_blocks, settings.num_looks)[-1]
        at_most = range(settings.block_size * last.num_blocks)
        return percentile_interval(at_most, 0.99, last.level) is None
    if verdict.decision != INCONCLUSIVE:
        return True
    margin = max(settings.margin, settings.noise_floor)
    return evidence.e2e is not None and zone(evidence.e2e, margin) is Zone.TIE


def _run_block(
    outcome: Outcome,
    arms: dict[str, Endpoint],
    order: Sequence[str],
    blocks: Blocks,
    settings: Settings,
    block: int,
    same_server: bool,
    sink: Sink | None,
) -> bool:
    """Whether the user stopped it."""
    valid = True
    for name in order:
        part = blocks.requests(block, name if same_server else "")
        requests = requests_of(part, arm=name, block=block)
        run = run_load(arms[name], requests, concurrency=settings.concurrency, sink=sink)
        outcome.records += run.records
        # The client is judged block by block; failures are, with all others, in `_judge`: a
        # single one among the twelve of a block would look like many.
        done = tuple(each for each in run.records if each.ok)
        if done:
            quality = judge(replace(run, records=done, num_planned=len(done)))
            outcome.problems += [each for each in quality.problems if each not in outcome.problems]
            valid = valid and quality.is_valid
        if run.is_stopped:
            outcome.problems.append(f"stopped in block {block + 1} of {settings.max_blocks}")
            return True
    outcome.num_invalid += not valid
    return False


def _all_failed(records: Sequence[Record]) -> str:
    """Why, where not one of them succeeded; nothing where one did."""
    if not records or any(each.ok for each in records):
        return ""
    return records[-1].error or "no reason given"


def _dead(outcome: Outcome, block: int) -> str:
    """An arm that answered nothing for a while would cost a timeout a request from now on."""
    for arm in (BASELINE, CANDIDATE):
        last = [each for each in outcome.of(arm) if each.block > block - _DEAD_BLOCKS]
        blocks = {each.block for each in last if not each.is_warmup}
        if len(blocks) == _DEAD_BLOCKS and (failed := _all_failed(last)):
            return f"{arm} answered nothing in {_DEAD_BLOCKS} blocks ({failed}): given up"
    return ""


def _judge(
    outcome: Outcome,
    settings: Settings,
    level: float,
    *,
    same_texts: bool,
    counted: AcceptanceCounts | None,
) -> None:
    failures, few_failed = failures_of({arm: outcome.of(arm) for arm in (BASELINE, CANDIDATE)})
    unfit = outcome.num_invalid > _MAX_INVALID_SHARE * outcome.num_blocks
    outcome.evidence = make_evidence(
        outcome.of(BASELINE),
        outcome.of(CANDIDATE),
        level=level,
        margin=settings.margin,
        noise_floor=settings.noise_floor,
        problems=[*failures, *outcome.problems],
        is_valid=few_failed and not unfit and not outcome.is_dead,
        ttft_bound=settings.ttft_bound,
        seed=settings.seed,
        same_texts=same_texts,
        counted=counted,
        load=f"concurrency {settings.concurrency}",
        memory=settings.memory,
        pairing=settings.pairing,
    )
    outcome.verdict = decide(outcome.evidence, margin=settings.margin)
