"""Times steps and drafts on this machine: what a round costs, before the first request comes."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from statistics import median

from torch import Tensor

from outdraft.engine.kept_costs import KeptCosts
from outdraft.engine.kv_cache import BlockPool
from outdraft.engine.proposers.proposer import DraftRequest, Observation, Observer, Proposer
from outdraft.engine.runners.runner import Run, Runner
from outdraft.engine.sampling import likeliest
from outdraft.engine.sequence import SamplingParams, Sequence
from outdraft.speculation import LOOKED_UP
from outdraft.step_costs import DraftPoint, ProposerCosts, RoundCosts, StepPoint

# Rows that share one reading of the weights: up to 6 or 12, by format. The next one is dearer.
_SIZES = (1, 4, 6, 7, 8, 12, 13, 16, 24, 32, 64)
_CONTEXT = 128  # tokens before those that are timed: a short chat
_LONG_CONTEXT = 1024
# (tokens of each, sequences, context), beside single sequences of each size
_SHAPES = ((1, 4, _CONTEXT), (6, 4, _CONTEXT), (1, 16, _CONTEXT), (4, 16, _CONTEXT),
           (1, 1, _LONG_CONTEXT), (6, 1, _LONG_CONTEXT), (1, 4, _LONG_CONTEXT),
           (6, 4, _LONG_CONTEXT))  # fmt: skip
_DRAFTS = ((1, 1), (1, 5), (4, 1), (4, 5), (12, 1), (12, 5))  # (sequences, depth)
_BEHIND = 64  # tokens that a draft has to read first, to time that
_TIMED = 3  # times that each is measured, after a first one to warm up
_MOST_SPREAD = 1.1  # median time of a step / shortest, where nothing else uses the machine
_ENOUGH_S = 10.0  # after which nothing is measured another time

OnMeasured = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class _Shape:
    """A step of `sequences` runs of `tokens` each, after `context` tokens."""

    tokens: int
    sequences: int
    context: int

    def contains(self, other: "_Shape") -> bool:
        return (
            self.tokens >= other.tokens
            and self.sequences >= other.sequences
            and self.context >= other.context
        )

    def runs(self, block_size: int, num_blocks: int) -> list[Run]:
        """Each on blocks of its own, as far as there are so many."""
        each = -(-(self.context + self.tokens) // block_size)
        tables = (
            [1 + (index * each + at) % (num_blocks - 1) for at in range(each)]
            for index in range(self.sequences)
        )
        return [Run([0] * self.tokens, self.context, table, self.tokens) for table in tables]


@dataclass(frozen=True, slots=True)
class _Draft:
    proposer: str
    sequences: int
    depth: int
    behind: int  # tokens of each text that the draft has not read


class CostsTimer:
    """Times an engine's steps and drafts once, or finds them kept from an earlier start."""

    def __init__(
        self,
        runner: Runner,
        pool: BlockPool,
        proposers: Mapping[str, Proposer],
        *,
        max_tokens: int,
        kept: KeptCosts | None = None,
    ) -> None:
        self._runner, self._pool = runner, pool
        # Lookups cost next to nothing.
        self._drafts = {name: each for name, each in proposers.items() if name not in LOOKED_UP}
        self._max_tokens = max_tokens
        self._kept = kept
        self._costs: RoundCosts | None = None

    def measure(self, on_measured: OnMeasured = lambda done, total: None) -> RoundCosts:
        """Only while nothing runs: cached blocks are overwritten, so nothing of them is found
        again."""
        if self._costs is None:
            self._pool.forget()
            measure = partial(
                time_rounds,
                self._runner,
                self._pool,
                self._drafts,
                max_tokens=self._max_tokens,
                on_measured=on_measured,
            )
            kept = None if self._kept is None else self._kept.read()
            if kept is None:
                kept, is_steady = measure()
                if self._kept is not None:
                    self._kept.write(kept, is_steady=is_steady)
            self._costs = kept
            _steps(self._runner, self._pool, 1)[0][1]()  # a warm-up, where they were kept
        return self._costs


def time_rounds(
    runner: Runner,
    pool: BlockPool,
    proposers: Mapping[str, Proposer],
    *,
    max_tokens: int,
    on_measured: OnMeasured = lambda done, total: None,
) -> tuple[RoundCosts, bool]:
    """What rounds cost, and whether times repeat: those of a busy moment are not kept for long.

    Each is timed between two plain steps and counts as so many of them: a machine that is slow for
    a while makes all three longer. `proposers`: those that compute, by name. Blocks of the
    runner's pool are overwritten.
    """
    features = runner.run([Run([0], 0, [1], 1)]).features
    drafting = {name: _Drafting(each, features) for name, each in proposers.items()}
    timed: list[tuple[_Shape | _Draft, Callable[[], float]]] = [*_steps(runner, pool, max_tokens)]
    for name, each in drafting.items():
        for count, depth in _DRAFTS:
            timed.append((_Draft(name, count, depth, 1), partial(each.seconds, count, depth)))
        late = _Draft(name, 1, 1, _BEHIND)
        timed.append((late, partial(each.seconds, 1, 1, _BEHIND)))
    plain = timed[0][1]
    ratios: dict[_Shape | _Draft, list[float]] = {what: [] for what, _ in timed}
    plains: list[float] = []
    began = time.perf_counter()
    for turn in range(1 + _TIMED):
        if turn > 1 and time.perf_counter() - began > _ENOUGH_S:
            break
        for index, (what, measure) in enumerate(timed):
            if not turn:
                measure()
            else:
                before, seconds, after = plain(), measure(), plain()
                ratios[what].append(2 * seconds / (before + after))
                plains += [before, after]
            on_measured(turn * len(timed) + index + 1, (1 + _TIMED) * len(timed))
    for each in drafting.values():
        each.end()
    middle = median(plains)
    usual = {what: middle * median(each) for what, each in ratios.items()}
    shapes = [what for what in usual if isinstance(what, _Shape)]
    points = [
        # A larger step that took less shows what a smaller one can take.
        StepPoint(
            what.tokens * what.sequences,
            what.sequences,
            what.context,
            min(usual[each] for each in shapes if each.contains(what)),
        )
        for what in shapes
    ]
    costs = RoundCosts.fit(points, {name: _fitted(name, usual) for name in proposers})
    spreads = [median(each) / min(each) for each in ratios.values()]
    is_repeated = all(len(each) > 1 for each in ratios.values())
    return costs, is_repeated and median(spreads) < _MOST_SPREAD


def _fitted(name: str, usual: Mapping[_Shape | _Draft, float]) -> ProposerCosts:
    own = {
        what: seconds
        for what, seconds in usual.items()
        if isinstance(what, _Draft) and what.proposer == name
    }
    points = [
        DraftPoint(what.sequences, what.depth, seconds)
        for what, seconds in own.items()
        if what.behind == 1
    ]
    longer = own[_Draft(name, 1, 1, _BEHIND)] - own[_Draft(name, 1, 1, 1)]
    return ProposerCosts.fit(points, catch_up=max(longer, 0.0) / (_BEHIND - 1))


def _steps(
    runner: Runner, pool: BlockPool, max_tokens: int
) -> list[tuple[_Shape, Callable[[], float]]]:
    size, num_blocks = pool.block_size, pool.num_blocks
    room = (num_blocks - 1) * size
    context = min(_CONTEXT, room // 2)
    sizes = [each for each in _SIZES if each <= min(max_tokens, room - context)] or [1]
    shapes = [_Shape(each, 1, context) for each in sizes]
    shapes += [
        _Shape(*each)
        for each in _SHAPES
        if each[0] * each[1] <= max_tokens and each[1] * (each[2] + each[0] + size) <= room
    ]

    def timer(runs: list[Run]) -> Callable[[], float]:
        def measure() -> float:
            start = time.perf_counter()
            likeliest(runner.run(runs).logits).tolist()
            return time.perf_counter() - start

        return measure

    return [(shape, timer(shape.runs(size, num_blocks))) for shape in shapes]


class _Drafting:
    """Times one proposer on texts of its own."""

    def __init__(self, proposer: Proposer, features: Tensor | None) -> None:
        """`features` (1, taps * hidden): the target's of any token, for a proposer that reads
        them."""
        self._proposer = proposer
        self._features = features
        params = SamplingParams(max_tokens=1 << 20)
        most = max(count for count, _ in _DRAFTS)
        self._texts = [
            Sequence(-1 - each, "", 0, [each + 2] * _CONTEXT, _CONTEXT, params, 0, frozenset())
            for each in range(most)
        ]
        self._shown = [0] * most  # tokens whose features the proposer has seen

    def seconds(self, count: int, depth: int, num_behind: int = 1) -> float:
        """Of a draft for so many texts that have `num_behind` new tokens each."""
        self._propose(count, 1)  # reads all that was written
        self._grow(count, num_behind)
        return self._propose(count, depth)

    def end(self) -> None:
        for text in self._texts:
            self._proposer.release(text)
        self._proposer.forget()

    def _grow(self, count: int, num_tokens: int) -> None:
        for text in self._texts[:count]:
            text.tokens += [1] * num_tokens

    def _propose(self, count: int, depth: int) -> float:
        if isinstance(self._proposer, Observer) and self._features is not None:
            observations = []
            for index, text in enumerate(self._texts[:count]):
                start, self._shown[index] = self._shown[index], len(text) - 1
                num_new = len(text) - 1 - start
                rows = self._features.expand(num_new, -1)
                observations.append(Observation(text, start, rows, 0, num_new))
            self._proposer.observe(observations)
        began = time.perf_counter()
        self._proposer.propose([DraftRequest(text, depth) for text in self._texts[:count]])
        return time.perf_counter() - began
