"""Of one load: the rules of its race, where it stands, and what blocks say of two arms. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from outdraft.decide.evidence import Evidence, Memory, Pairing
from outdraft.decide.verdict import Verdict
from outdraft.records import Record
from outdraft.speculation import Speculation
from outdraft.stats import Ratio
from outdraft.tune.arm import name_of
from outdraft.tune.journal import Block
from outdraft.tune.objective import Objective

_DRAWS = 400  # of the bootstrap, while the race goes on; verdicts have the usual number


@dataclass(frozen=True, slots=True)
class Rules:
    objective: Objective
    num_profile: int = 2  # blocks of the first part
    max_finalists: int = 3
    max_blocks: int = 20
    margin: float = 0.01
    load_name: str = "this load"
    memory: Mapping[str, Memory] = field(default_factory=dict)  # by the proposer's name
    pairing: Mapping[str, Pairing] = field(default_factory=dict)


@dataclass(slots=True)
class Standing:
    """Of one load: everything that follows from its blocks."""

    forecast: dict[str, float] = field(default_factory=dict)  # speedups, from the first part alone
    # The same, corrected by what other arms gave since; never by the arm's own blocks.
    predicted: dict[str, float] = field(default_factory=dict)
    calibrated: tuple[str, ...] = ()  # arms that the predictions were made from
    is_profiled: bool = False  # the first part is over, whether or not it could predict
    finalists: tuple[Speculation, ...] = ()  # those that have raced
    measured: dict[str, Ratio] = field(default_factory=dict)  # those that raced, over off
    dropped: dict[str, str] = field(default_factory=dict)  # name → why it does not race now
    failed: dict[str, str] = field(default_factory=dict)  # name → why
    alive: tuple[Speculation, ...] = ()  # those that race now, the leader first
    best: Speculation | None = None
    evidence: Evidence | None = None
    verdict: Verdict | None = None
    next_arms: tuple[Speculation, ...] = ()  # off first; () when all is done
    next_block: int = 0
    is_clear: bool = False


@dataclass(slots=True)
class Known:
    """What was worked out already: of blocks that are there it stays the same."""

    ratios: dict[tuple[str, str, int], Ratio | None] = field(default_factory=dict)
    gains: dict[tuple[str, int], float | None] = field(default_factory=dict)  # logarithms
    judged: dict[tuple[str, int, int], tuple[Evidence, Verdict]] = field(default_factory=dict)
    predicted: dict[tuple[tuple[str, ...], ...], dict[str, float]] = field(default_factory=dict)


def records_of(
    blocks: Mapping[str, Sequence[Block]], arm: Speculation, before: int | None = None
) -> list[Record]:
    return [record for block in fit(blocks, arm, before) for record in block.records]


def fit(blocks: Mapping[str, Sequence[Block]], arm: Speculation, before: int | None) -> list[Block]:
    """Those before number `before`; where the client was unfit to measure they are left out."""
    return [
        block
        for block in blocks.get(name_of(arm), ())
        if (before is None or block.block < before) and not block.problems
    ]


def ratio_between(
    baseline: Speculation,
    candidate: Speculation,
    blocks: Mapping[str, Sequence[Block]],
    rules: Rules,
    number: int,
    known: Known,
) -> Ratio | None:
    """Over the blocks before `number`."""
    key = (name_of(baseline), name_of(candidate), number)
    if key not in known.ratios:
        known.ratios[key] = rules.objective.ratio(
            records_of(blocks, baseline, number),
            records_of(blocks, candidate, number),
            draws=_DRAWS,
        )
    return known.ratios[key]
