"""How long engines of this run took to start, and so how long the next start may take."""

import time
from collections.abc import Callable, Iterable

from outdraft.speculation import Speculation
from outdraft.stats.percentiles import percentile
from outdraft.tune.engines import OnWait, RunningEngine, StartEngine
from outdraft.tune.journal import SHORTEST_START_S

# Name, seconds since the start, last line of the log, seconds that earlier starts took
OnStart = Callable[[str, float, str, float | None], None]


class StartTimes:
    """Of all starts that succeeded: those before a run was continued, and those since."""

    def __init__(self, earlier_s: Iterable[float] = ()) -> None:
        self._all_s = [each for each in earlier_s if each >= SHORTEST_START_S]

    @property
    def usual_s(self) -> float | None:
        """The median of all; None before the first."""
        return percentile(self._all_s, 0.5) if self._all_s else None

    def timed(
        self, start_engine: StartEngine, clock: Callable[[], float] = time.monotonic
    ) -> StartEngine:
        """The same, and its time is remembered."""

        def start(speculation: Speculation, name: str) -> RunningEngine:
            began = clock()
            engine = start_engine(speculation, name)
            if (took_s := clock() - began) >= SHORTEST_START_S:
                self._all_s.append(took_s)
            return engine

        return start

    def shown(self, on_start: OnStart) -> OnWait:
        """Adds what earlier starts took."""
        return lambda name, seconds, line: on_start(name, seconds, line, self.usual_s)


def time_left(seconds: float, usual_s: float | None) -> str:
    """After so many seconds of a start, in words; empty before the first start has ended."""
    if usual_s is None:
        return ""
    earlier = f"earlier starts took {usual_s:.0f} s"
    left_s = usual_s - seconds
    left = f"about {left_s:.0f} s left" if left_s >= 1 else "longer than usual"
    return f"{left} ({earlier})"
