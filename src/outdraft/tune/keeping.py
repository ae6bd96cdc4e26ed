"""How the engines of a run share the machine while they are compared. Pure.

Asleep: all are up and one is awake, with the memory that it would have alone. Side by side: all are
awake, and only one has requests; they divide the memory. In visits: one is up at a time, and what
it is needed for is measured before it goes.
"""

from dataclasses import dataclass
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
_SHARE = 0.9  # of a GPU that engines take where nobody says
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
    most: int | None = None  # engines that are up at a time; None: as many as are needed
    share: float | None = None  # of a GPU for each, where they divide it
    note: str = ""  # what a user should know, and a reader of the report
    memory: str = ""  # what they take, for who watches the run

    @property
    def words(self) -> str:
        return self.how if self.share is None else f"{self.how}, {self.share:.0%} of a GPU each"


def plan_keeping(
    wanted: str | None,
    sleep: Sleep | None,
    memory: Memory,
    engine_flags: tuple[str, ...] = (),
    num_cards: int = 1,
    num_engines: int = 0,
) -> Keeping:
    """`wanted`: what the user asked for; None: the best that the engine and the memory allow.
    `num_cards`: to which engines can be dealt, each with an off of its own. `num_engines`: of all
    arms, off included; 0: not known."""
    if wanted == ASLEEP and sleep is None:
        raise OptionError(
            f"--keep-engines {ASLEEP}: this engine cannot sleep here; {SIDE_BY_SIDE} or {VISITS}"
        )
    if wanted in (None, ASLEEP) and sleep is not None:
        keeping = _asleep(sleep, memory, _share_of_one(engine_flags))
        most = keeping.most
        if wanted == ASLEEP or most is None or 1 + num_cards * (most - 1) >= _FEWEST:
            return keeping
        return Keeping(VISITS, 1, note=f"{keeping.note}; engines are visited one after the other")
    if wanted == VISITS or (wanted is None and memory.is_gpu):
        return Keeping(VISITS, 1)
    if memory.is_gpu:
        share = floor(100 * _SHARE / _MOST_DIVIDED) / 100
        note = f"each engine has {share:.0%} of the GPU: its KV cache is smaller than it would be"
        return Keeping(SIDE_BY_SIDE, _MOST_DIVIDED, share, note)
    if memory.weights is None:
        return Keeping(SIDE_BY_SIDE)
    each = 2 * memory.weights + _OVERHEAD_BYTES
    if wanted is None and memory.main_free is not None and memory.main_free // each < _FEWEST:
        note = f"{memory.main_free / GIB:.1f} GiB of memory are too little for {_FEWEST} at once"
        return Keeping(VISITS, 1, note=note)
    sizes = [each] * num_engines
    return Keeping(
        SIDE_BY_SIDE, memory=memory_words(sizes, memory.main_free, None) if sizes else ""
    )


def _asleep(sleep: Sleep, memory: Memory, share: float) -> Keeping:
    """One awake takes `share` of the GPU; every other one keeps something on it."""
    if memory.gpu_total is None or memory.gpu_free is None:
        return Keeping(ASLEEP)
    asleep = _ASLEEP_BYTES + (memory.weights or 0 if sleep.keeps_weights else 0)
    spare = memory.gpu_free - share * memory.gpu_total
    fitting = [max(0, int(spare // asleep))]
    if memory.weights and memory.main_free is not None and not sleep.keeps_weights:
        fitting.append(memory.main_free // (memory.weights + _OVERHEAD_BYTES))
    most = 1 + min(fitting)
    note = (
        f"up to {most} engines are up, one of them awake: it takes {share:.0%} of "
        f"{memory.gpu_total / GIB:.0f} GiB, one that sleeps about {asleep / GIB:.1f} GiB"
    )
    if most < _FEWEST:
        note += f"; a lower {_SHARE_FLAGS[0]} in --engine-flags leaves room for more"
    return Keeping(ASLEEP, most, note=note)


def _share_of_one(engine_flags: tuple[str, ...]) -> float:
    for flag in user_flags(engine_flags):
        if flag.name in _SHARE_FLAGS and flag.values:
            try:
                return float(flag.values[0])
            except ValueError:
                break
    return _SHARE
