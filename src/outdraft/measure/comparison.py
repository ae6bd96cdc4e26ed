"""A comparison of two servers: what it is asked to do, its state and its result."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from outdraft.decide.evidence import Evidence
from outdraft.decide.verdict import DEFAULT_MARGIN, Verdict
from outdraft.errors import OptionError
from outdraft.measure.block_size import PLATEAU_S, fitting_block, least_block
from outdraft.measure.gauges import Sample, means_and_peaks
from outdraft.measure.running import RunningRequests, mean_of_blocks
from outdraft.plan.findings import Pairing, Shares
from outdraft.records import Record
from outdraft.stats.ratios import MIN_BLOCKS

_MAX_BLOCKS = 20  # where the number of requests is not given


@dataclass(frozen=True, slots=True)
class ComparisonSettings:
    max_requests: int | None = None  # of each arm; None: of 20 blocks
    block_size: int | None = None  # None: by the speed of the warm-up, and then set to that
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

    def __post_init__(self) -> None:
        least, most = least_block(self.concurrency), self.largest_block
        if self.block_size is not None and self.block_size < least:
            raise OptionError(
                f"blocks of {self.block_size} requests never have {self.concurrency} running for "
                f"long; --block must be at least {least} there, or --concurrency lower"
            )
        if most is not None and most < least:
            raise OptionError(
                f"--requests {self.max_requests} is too few for {MIN_BLOCKS} blocks with "
                f"{self.concurrency} running; give {MIN_BLOCKS * least} or more, or a lower "
                "--concurrency"
            )

    @property
    def largest_block(self) -> int | None:
        """That leaves enough blocks for an interval."""
        return None if self.max_requests is None else self.max_requests // MIN_BLOCKS

    @property
    def max_blocks(self) -> int:
        if self.max_requests is None or self.block_size is None:
            return _MAX_BLOCKS
        return max(self.max_requests // self.block_size, MIN_BLOCKS)

    @property
    def for_evidence(self) -> dict[str, Any]:
        names = ("margin", "noise_floor", "seed", "ttft_bound", "concurrency", "memory", "pairing")
        return {**{name: getattr(self, name) for name in names}, "is_lossy": self.lossy}

    def sized(self, answer_s: float) -> tuple[ComparisonSettings, str]:
        """With a size of blocks that fits such answers; and a note, where they are too few."""
        size = fitting_block(self.concurrency, answer_s)
        if self.largest_block is None or size <= self.largest_block:
            return replace(self, block_size=size), ""
        note = (
            f"--requests {self.max_requests} allows blocks of {self.largest_block} requests; "
            f"{MIN_BLOCKS * size} would allow {size}, for {PLATEAU_S:g} s of steady load in each"
        )
        return replace(self, block_size=self.largest_block), note


@dataclass(slots=True)
class Comparison:
    """The state of a comparison, and its result."""

    settings: ComparisonSettings  # with the size of blocks, once it is known
    records: list[Record] = field(default_factory=list)
    num_blocks: int = 0
    num_invalid: int = 0  # blocks in which the client was too slow to measure
    is_dead: bool = False  # an arm stopped answering; its earlier answers do not count
    problems: list[str] = field(default_factory=list)
    # Requests that a server said to run, by arm: the mean of each block
    running: dict[str, list[float]] = field(default_factory=dict)
    gpus: dict[str, list[Sample]] = field(default_factory=dict)  # by arm, while requests counted
    evidence: Evidence | None = None
    verdict: Verdict | None = None

    def of(self, arm: str) -> list[Record]:
        return [record for record in self.records if record.arm == arm]

    @property
    def mean_running(self) -> dict[str, RunningRequests]:
        """Requests that a server said to run, of arms that did."""
        found = {arm: mean_of_blocks(each) for arm, each in self.running.items()}
        return {arm: each for arm, each in found.items() if each is not None}

    @property
    def gpu_figures(self) -> dict[str, dict[str, float]]:
        """Of arms whose GPUs were looked at."""
        return {arm: means_and_peaks(each) for arm, each in self.gpus.items() if each}

    @property
    def short_loads(self) -> list[str]:
        """A sentence on each arm that did not run what was sent. Of one at a time the gauge is 0
        while its prompt is read, which is no limit."""
        wanted = self.settings.concurrency
        return [
            f"{arm}: on average {mean} of {wanted} requests were running, as the server counts"
            ": it may have a limit of its own, or the client or the network is too slow"
            for arm, mean in self.mean_running.items()
            if wanted > 1 and mean.is_short_of(wanted)
        ]
