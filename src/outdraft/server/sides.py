"""What decoding took with and without speculation, by the number of texts written at once."""

from collections import defaultdict

from outdraft.engine.outputs import StepStats
from outdraft.workload.running import running_band

PLAIN, SPECULATING, MIXED = "plain", "speculating", "mixed"

Key = tuple[str, str]  # (side, band of running texts)


class Sides:
    """Seconds of texts (a step of 0.1 s for three texts is 0.3 s) and their tokens.

    Steps that read prompts too are a side of their own: what texts wait there is the same with and
    without speculation. A step counts for neither where the schedule turns speculation off at this
    load, and right after a switch: then a draft has to read what was written meanwhile.
    """

    def __init__(self) -> None:
        self.seconds: defaultdict[Key, float] = defaultdict(float)
        self.tokens: defaultdict[Key, float] = defaultdict(float)
        self._last = ""  # side of the last step without prompts

    def observe(self, stats: StepStats, *, is_plain: bool) -> None:
        """`is_plain`: nobody was to get drafts, in a slice, by an operator's limits (but for
        slices), or since the server does not speculate at all."""
        num_texts = len(stats.draft_lengths)
        if not num_texts:
            return
        side = PLAIN if is_plain else SPECULATING if stats.max_k else ""
        if not stats.is_decoding:
            self._count(MIXED if side else "", num_texts, stats)
            return
        if side == self._last:
            self._count(side, num_texts, stats)
        self._last = side

    def _count(self, side: str, num_texts: int, stats: StepStats) -> None:
        if side:
            key = side, running_band(num_texts)
            self.seconds[key] += num_texts * stats.seconds
            self.tokens[key] += stats.num_decoded
