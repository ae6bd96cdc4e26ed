"""What a decoding step costs, in seconds, by the number of tokens it computes; what a round costs,
its drafts included."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from statistics import median
from typing import Any, NamedTuple

import numpy as np


class Line:
    """Straight lines between points (x, y); the first and last one go on outside."""

    def __init__(self, points: Iterable[tuple[float, float]]) -> None:
        ordered = sorted(points)
        self._xs, self._ys = [x for x, _ in ordered], [y for _, y in ordered]

    def at(self, x: float) -> float:
        xs, ys = self._xs, self._ys
        if len(xs) == 1:
            return ys[0]
        at = min(max(bisect_left(xs, x), 1), len(xs) - 1)
        low, below = xs[at - 1], ys[at - 1]
        return below + (ys[at] - below) / (xs[at] - low) * (x - low)


def interpolate(points: Iterable[tuple[float, float]], x: float) -> float:
    return Line(points).at(x)


class StepCosts:
    """Seconds of a step: measured at some sizes, interpolated between them."""

    def __init__(self, measured: Mapping[int, float]) -> None:
        self.measured = dict(sorted(measured.items()))  # tokens of a step → seconds
        self._least = self.measured[min(self.measured)]
        self._line = Line(self.measured.items())

    @classmethod
    def median_of(cls, tables: Iterable[Mapping[int, float]]) -> StepCosts | None:
        """Size by size, the median of what several engines measured; None without any table."""
        seconds: dict[int, list[float]] = {}
        for table in tables:
            for size, each in table.items():
                seconds.setdefault(size, []).append(each)
        return cls({size: median(each) for size, each in seconds.items()}) if seconds else None

    def seconds(self, num_tokens: float) -> float:
        """Of a step that computes so many tokens; never below the smallest size measured."""
        return max(self._line.at(num_tokens), self._least)


class DraftingCosts:
    """What a step costs in plain steps, by the draft tokens that it verifies for each sequence.

    0 draft tokens cost 1. Measured costs are split into verifying, where `verification` says what
    that costs, and drafting, which is interpolated. Without it, verifying counts as a plain step.
    """

    def __init__(
        self, measured: Mapping[float, float], verification: Callable[[float], float] | None = None
    ) -> None:
        self._verification = verification or (lambda num_drafted: 1.0)
        drafting = {each: cost - self._verification(each) for each, cost in measured.items()}
        self._drafting = Line({0.0: 0.0, **drafting}.items())

    def at(self, num_drafted: float) -> float:
        # No step is faster than a plain one, however noisy the measurements are.
        return max(self.beyond_verification(num_drafted) + self._verification(num_drafted), 1.0)

    def beyond_verification(self, num_drafted: float) -> float:
        return self._drafting.at(num_drafted)


def verification_costs(
    costs: StepCosts, num_sequences: float, plain_seconds: float
) -> Callable[[float], float]:
    """Draft tokens of each sequence → what verifying them costs, in plain steps.

    `costs` were measured on short texts. What a longer context adds to a plain step (of
    `plain_seconds`), it adds to a verification step too.
    """
    base = costs.seconds(num_sequences)

    def cost(num_drafted: float) -> float:
        return 1 + (costs.seconds(num_sequences * (1 + num_drafted)) - base) / plain_seconds

    return cost


class StepPoint(NamedTuple):
    """One timed step: so many tokens in all, of so many sequences, each after `context` tokens."""

    tokens: int
    sequences: int
    context: int
    seconds: float


class DraftPoint(NamedTuple):
    """One timed draft: so many tokens deep, for so many sequences at once."""

    sequences: int
    depth: int
    seconds: float


@dataclass(frozen=True, slots=True)
class ProposerCosts:
    """Seconds that a proposer takes to draft, as straight lines. Tokens of one depth are computed
    together, so that depth is shared by all sequences and tokens are not."""

    overhead: float = 0.0  # of a round, however little is drafted
    per_depth: float = 0.0  # of each pass over the draft
    per_token: float = 0.0  # of each draft token
    catch_up: float = 0.0  # of each token of the text that the draft has not read yet

    @classmethod
    def fit(cls, points: Iterable[DraftPoint], catch_up: float = 0.0) -> ProposerCosts:
        """Least squares through timed drafts of several depths and numbers of sequences."""
        points = list(points)
        features = [[1.0, each.depth, each.depth * each.sequences] for each in points]
        overhead, per_depth, per_token = _fit(features, [each.seconds for each in points])
        return cls(overhead, per_depth, per_token, catch_up)

    def seconds(self, depth: int, num_drafted: int, num_behind: int = 0) -> float:
        """Of a draft of together `num_drafted` tokens, the deepest of `depth`."""
        if not num_drafted:
            return 0.0
        shared = self.overhead + self.per_depth * depth
        return shared + self.per_token * num_drafted + self.catch_up * num_behind

    def times(self, factor: float) -> ProposerCosts:
        return ProposerCosts(
            self.overhead * factor,
            self.per_depth * factor,
            self.per_token * factor,
            self.catch_up * factor,
        )


@dataclass(frozen=True, slots=True)
class RoundCosts:
    """What a round costs on one machine: verification by tokens, sequences and context, drafting
    by depth and tokens of each proposer. Data: made of timed steps, kept as JSON."""

    by_tokens: Mapping[int, float]  # tokens of one sequence after `context` → seconds
    context: int = 0
    per_sequence: float = 0.0  # seconds of each sequence after the first
    per_read: float = 0.0  # of each token of context more, once for a sequence
    per_row_read: float = 0.0  # of each token of context more, for every token computed
    proposers: Mapping[str, ProposerCosts] = field(default_factory=dict)

    @classmethod
    def fit(
        cls, points: Iterable[StepPoint], proposers: Mapping[str, ProposerCosts] | None = None
    ) -> RoundCosts:
        """Steps of one sequence at the shortest context are kept as they are; what others take
        more is put down to sequences and context, by least squares."""
        points = list(points)
        context = min(each.context for each in points if each.sequences == 1)
        base = [each for each in points if each.sequences == 1 and each.context == context]
        plain = cls(
            dict(sorted((each.tokens, each.seconds) for each in base)),
            context,
            proposers=dict(proposers or {}),
        )
        others = [each for each in points if each not in base]
        features = [
            [each.sequences - 1.0, *plain._reads(each.tokens, each.sequences, each.context)]
            for each in others
        ]
        excess = [each.seconds - plain.verification(*each[:3]) for each in others]
        per_sequence, per_read, per_row_read = _fit(features, excess) if others else (0.0,) * 3
        return replace(
            plain, per_sequence=per_sequence, per_read=per_read, per_row_read=per_row_read
        )

    def verification(self, tokens: float, sequences: int, context: float) -> float:
        """Seconds of a step; `context` is the mean of its sequences."""
        reads, row_reads = self._reads(tokens, sequences, context)
        more = self.per_read * reads + self.per_row_read * row_reads
        return (
            StepCosts(self.by_tokens).seconds(tokens) + self.per_sequence * (sequences - 1) + more
        )

    def drafting(self, proposer: str, depth: int, num_drafted: int, num_behind: int = 0) -> float:
        """Seconds; 0 for a proposer that was not timed: a lookup."""
        costs = self.proposers.get(proposer)
        return costs.seconds(depth, num_drafted, num_behind) if costs else 0.0

    def _reads(self, tokens: float, sequences: int, context: float) -> tuple[float, float]:
        more = max(context - self.context, 0.0)
        return sequences * more, tokens * more

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> RoundCosts:
        by_tokens = {int(tokens): float(s) for tokens, s in values["by_tokens"].items()}
        proposers = {name: ProposerCosts(**each) for name, each in values["proposers"].items()}
        return cls(**{**values, "by_tokens": by_tokens, "proposers": proposers})


def _fit(features: list[list[float]], seconds: list[float]) -> tuple[float, ...]:
    """Least squares without negative coefficients: noise makes no step cheaper. The most negative
    one is set to 0 until none is left."""
    matrix, right = np.array(features, float), np.array(seconds, float)
    kept = [at for at in range(matrix.shape[1]) if matrix[:, at].any()]
    solution = np.zeros(matrix.shape[1])
    while kept:
        scale = np.abs(matrix[:, kept]).max(axis=0)
        found = np.linalg.lstsq(matrix[:, kept] / scale, right, rcond=None)[0]
        if found.min() >= 0:
            solution[kept] = found / scale
            break
        del kept[int(found.argmin())]
    return tuple(solution.tolist())
