"""What decoding took with and without speculation, by the number of texts written at once."""

from collections import defaultdict

from outdraft.engine.outputs import StepStats
from outdraft.workload.running import running_band

# As it is set; in a slice of the canary; in steps that read prompts too
SPECULATING, PLAIN, MIXED = "speculating", "plain", "mixed"
# The same where only an operator's limits keep drafts away: a slice has drafts there.
STOPPED, TRIED, MIXED_STOPPED = "stopped", "tried", "mixed stopped"

Key = tuple[str, str]  # (side, band of running texts)


class Sides:
    """Seconds of texts (a step of 0.1 s for three texts is 0.3 s) and their tokens.

    Steps that read prompts too are a side of their own: what texts wait there is the same with and
    without speculation. A step counts for neither where the schedule turns speculation off at this
    load, and right after a switch: then a draft has to read what was written meanwhile.
    """

    def __init__(self, *, speculates: bool = True) -> None:
        """A server that never does is plain all the time."""
        self._speculates = speculates
        self.seconds: defaultdict[Key, float] = defaultdict(float)
        self.tokens: defaultdict[Key, float] = defaultdict(float)
        self._last = ""  # side of the last step without prompts

    def observe(self, stats: StepStats, *, in_slice: bool) -> None:
        num_texts = len(stats.draft_lengths)
        if not num_texts:
            return
        side = self._side(stats, in_slice)
        if not stats.is_decoding:
            mixed = MIXED_STOPPED if stats.is_stopped else MIXED
            self._count(mixed if side else "", num_texts, stats)
            return
        if side == self._last:
            self._count(side, num_texts, stats)
        self._last = side

    def _side(self, stats: StepStats, in_slice: bool) -> str:
        """Empty: none."""
        if not self._speculates:
            return PLAIN
        if stats.is_stopped:
            return STOPPED if not in_slice else TRIED if stats.max_k else ""
        return PLAIN if in_slice else SPECULATING if stats.max_k else ""

    def _count(self, side: str, num_texts: int, stats: StepStats) -> None:
        if side:
            key = side, running_band(num_texts)
            self.seconds[key] += num_texts * stats.seconds
            self.tokens[key] += stats.num_decoded
