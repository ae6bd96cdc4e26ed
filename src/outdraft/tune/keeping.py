"""How the engines of a run share the machine while they are compared. Pure.

Asleep: all are up and one is awake, with the memory that it would have alone. Side by side: all are
awake, and only one has requests; they divide the memory. In visits: one is up at a time, and what
it is needed for is measured before it goes.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import floor

from outdraft.backends.backend import Sleep
from outdraft.backends.flags import user_flags
from outdraft.errors import OptionError
from outdraft.tune.footprint import memory_words
from outdraft.tune.options import ASLEEP, SIDE_BY_SIDE, VISITS

GIB = 1 << 30
# What an engine that sleeps keeps on a GPU: its context and its graphs (1.3 GiB seen with vLLM)
_ASLEEP_BYTES = 3 * GIB // 2
_OVERHEAD_BYTES = 2 * GIB  # of an engine beside weights, in main memory
_SHARE = 0.9  # of a GPU that an engine takes where nobody says, not even the engine
_ROOM = 1.5  # times the largest engine's main memory, where nothing was planned for one
_SHARE_FLAGS = ("--gpu-memory-utilization", "--mem-fraction-static")
_FEWEST = 3  # off and two arms: with fewer side by side, engines come and go all the time
_MOST_DIVIDED = 4  # engines that divide a GPU


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes. None: not known."""

    weights: int | None  # of the target and the largest draft
    main_free: int | None
    is_gpu: bool = False  # whether the engine runs on one
    gpu_total: int | None = None  # of the smallest GPU
    gpu_free: int | None = None


@dataclass(frozen=True, slots=True)
class Keeping:
    how: str  # ASLEEP, SIDE_BY_SIDE or VISITS
    # Engines that are up at a time, asleep on each card; None: as many as are needed
    most: int | None = None
    share: float | None = None  # of a GPU for each that is awake; None: as the engine is told
    each_bytes: int | None = None  # of main memory, as planned for an engine beside others
    note: str = ""  # what a user should know, and a reader of the report
    memory: str = ""  # what they take, for who watches the run
    most_in_all: int | None = None  # on all cards together, by main memory; None: any number

    @property
    def words(self) -> str:
        if self.share is None or self.how != SIDE_BY_SIDE:
            return self.how
        return f"{self.how}, {self.share:.0%} of a GPU each"


def roomy_gpus(free: Sequence[int], num_each: int) -> list[int]:
    """Places of the GPUs that engines may run on, of those that are visible; `num_each` in a row
    are a card. The first card is what one engine takes. A further one counts where it has as much
    free, but for what a sleeper keeps: on one that somebody else uses, times would be theirs."""
    cards = [range(at, at + num_each) for at in range(0, len(free) - num_each + 1, num_each)]
    if not cards:
        return list(range(len(free)))
    least = min(free[at] for at in cards[0]) - _ASLEEP_BYTES
    roomy = [card for card in cards if min(free[at] for at in card) >= least]
    return [at for card in roomy for at in card]


def room_for_one(planned: int | None, largest: int) -> float:
    """Bytes of main memory that must be free to have one more engine beside others: what is planned
    for each, or what the largest one takes where that is more. Without a plan half as much again:
    the next may be larger."""
    return _ROOM * largest if planned is None else max(planned, largest)


def plan_keeping(
    wanted: str | None,
    sleep: Sleep | None,
    memory: Memory,
    engine_flags: tuple[str, ...] = (),
    num_cards: int = 1,
    num_engines: int = 0,
    told_share: float | None = None,
) -> Keeping:
    """`wanted`: what the user asked for; None: the best that the engine and the memory allow.
    `num_cards`: to which engines can be dealt, each with an off of its own. `num_engines`: of all
    arms, off included; 0: not known. `told_share`: of a GPU, what an engine is told to take unless
    the user says it; None: it is told nothing."""
    if wanted == ASLEEP and sleep is None:
        raise OptionError(
            f"--keep-engines {ASLEEP}: this engine cannot sleep here; {SIDE_BY_SIDE} or {VISITS}"
        )
    given = _given_share(engine_flags)
    told = told_share if memory.is_gpu and given is None else None
    if wanted in (None, ASLEEP) and sleep is not None:
        keeping = replace(_asleep(sleep, memory, given or told or _SHARE), share=told)
        most, in_all = keeping.most, keeping.most_in_all
        # A further card holds one more off, in main memory too.
        held = num_cards if most is None or in_all is None else min(num_cards, in_all // most)
        if wanted == ASLEEP or most is None or 1 + max(held, 1) * (most - 1) >= _FEWEST:
            return keeping
        note = f"{keeping.note}; engines are visited one after the other"
        return Keeping(VISITS, 1, told, note=note)
    if wanted == VISITS or (wanted is None and memory.is_gpu):
        return Keeping(VISITS, 1, told)
    if memory.is_gpu:
        share = floor(100 * _SHARE / _MOST_DIVIDED) / 100
        note = f"each engine has {share:.0%} of the GPU: its KV cache is smaller than it would be"
        return Keeping(SIDE_BY_SIDE, _MOST_DIVIDED, share, note=note)
    if memory.weights is None:
        return Keeping(SIDE_BY_SIDE)
    each = 2 * memory.weights + _OVERHEAD_BYTES
    if wanted is None and memory.main_free is not None and memory.main_free // each < _FEWEST:
        note = f"{memory.main_free / GIB:.1f} GiB of memory are too little for {_FEWEST} at once"
        return Keeping(VISITS, 1, note=note)
    sizes = [each] * num_engines
    words = memory_words(sizes, memory.main_free, None) if sizes else ""
    return Keeping(SIDE_BY_SIDE, each_bytes=each, memory=words)


def _asleep(sleep: Sleep, memory: Memory, share: float) -> Keeping:
    """One awake takes `share` of the GPU; every other one keeps something on it. All of them count
    in main memory: the one that is awake falls asleep before the next one is."""
    each = None
    if memory.weights is not None:
        each = _OVERHEAD_BYTES + (0 if sleep.keeps_weights else memory.weights)
    if memory.gpu_total is None or memory.gpu_free is None:
        return Keeping(ASLEEP, each_bytes=each)
    asleep = _ASLEEP_BYTES + (memory.weights or 0 if sleep.keeps_weights else 0)
    spare = memory.gpu_free - share * memory.gpu_total
    most, in_all = 1 + max(0, int(spare // asleep)), None
    if each is not None and memory.main_free is not None:
        in_all = max(1, memory.main_free // each)
        most = min(most, in_all)
    note = (
        f"up to {most} engines are up, one of them awake: it takes {share:.0%} of "
        f"{memory.gpu_total / GIB:.0f} GiB, one that sleeps about {asleep / GIB:.1f} GiB"
    )
    if most < _FEWEST:
        note += f"; a lower {_SHARE_FLAGS[0]} in --engine-flags leaves room for more"
    return Keeping(ASLEEP, most, each_bytes=each, note=note, most_in_all=in_all)


def _given_share(engine_flags: tuple[str, ...]) -> float | None:
    """By the user; a file of settings may hold it, and is taken to."""
    for flag in user_flags(engine_flags):
        name = flag.name.replace("_", "-")
        if name in _SHARE_FLAGS and flag.values:
            with suppress(ValueError):
                return float(flag.values[0])
        if name == "--config":
            return _SHARE
    return None
