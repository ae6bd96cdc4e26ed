"""What decoding took with and without speculation, by the number of texts written at once, and by
temperatures: with and without drafts for these."""

from collections import defaultdict

from outdraft.engine.outputs import StepStats
from outdraft.workload.running import running_band
from outdraft.workload.temperatures import temperature_band

# As it is set; in a slice of the canary; in steps that read prompts too
SPECULATING, PLAIN, MIXED = "speculating", "plain", "mixed"
# The same where only an operator's limits keep drafts away: a slice has drafts there.
STOPPED, TRIED, MIXED_STOPPED = "stopped", "tried", "mixed stopped"


class Spent:
    """By side and band. Seconds of texts: a step of 0.1 s for three texts is 0.3 s."""

    def __init__(self) -> None:
        self.seconds: defaultdict[tuple[str, str], float] = defaultdict(float)
        self.tokens: defaultdict[tuple[str, str], float] = defaultdict(float)

    def add(self, side: str, band: str, stats: StepStats) -> None:
        if side:
            self.seconds[side, band] += len(stats.draft_lengths) * stats.seconds
            self.tokens[side, band] += stats.num_decoded


class Sides:
    """Steps that read prompts too are a side of their own: what texts wait there is the same with
    and without speculation. A step counts for neither where the schedule turns speculation off at
    this load, and right after a switch: then a draft has to read what was written meanwhile.
    """

    def __init__(self, *, speculates: bool = True) -> None:
        """A server that never does is plain all the time."""
        self._speculates = speculates
        self.by_load = Spent()  # how many texts run
        self.by_temperature = Spent()  # all texts of steps that one of them is in
        # Side of the last step without prompts, and the band of its slice
        self._last: tuple[str, str | None] = "", None

    def observe(self, stats: StepStats, *, in_slice: bool, band: str = "") -> None:
        """`band`: of temperatures, that the slice is for; empty: for everybody."""
        num_texts = len(stats.draft_lengths)
        if not num_texts:
            return
        side = self._side(stats, in_slice, band)
        if not stats.is_decoding:
            mixed = MIXED_STOPPED if stats.is_stopped else MIXED
            self.by_load.add(mixed if side else "", running_band(num_texts), stats)
            return
        treatment = side, band if in_slice else None
        if treatment == self._last:
            self.by_load.add(side, running_band(num_texts), stats)
            if self._speculates and not stats.is_stopped:
                self._count_bands(stats, in_slice, band)
        self._last = treatment

    def _side(self, stats: StepStats, in_slice: bool, band: str) -> str:
        """Empty: none."""
        if not self._speculates:
            return PLAIN
        if band and (stats.max_k or any(stats.stopped)):
            return ""  # others go on
        if stats.is_stopped:
            return STOPPED if not in_slice else TRIED if stats.max_k else ""
        return PLAIN if in_slice else SPECULATING if stats.max_k else ""

    def _count_bands(self, stats: StepStats, in_slice: bool, band: str) -> None:
        """All texts of the step, for each band that is in it: they share what its drafts cost."""
        bands = {
            temperature_band(temperature): is_off
            for temperature, is_off in zip(stats.temperatures, stats.stopped, strict=True)
        }
        for each, is_off in bands.items():
            usual, other = (STOPPED, TRIED) if is_off else (SPECULATING, PLAIN)
            side = usual if not in_slice else other if each == band else ""
            if stats.max_k or side in (STOPPED, PLAIN):
                self.by_temperature.add(side, each, stats)
