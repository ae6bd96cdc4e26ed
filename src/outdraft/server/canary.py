"""Short slices of decoding without speculation, by which is seen what it is worth now.

What a plain server would need cannot be seen from one request without drafts: it shares its steps
with the verification of others. So in a slice nobody gets drafts, for a few steps. Where an
operator turned drafts off it is the other way round: in a slice texts get drafts. Where texts of
several temperatures are written, every third slice is for those of one band of temperatures alone,
others go on: what drafts for these are worth to all who share their steps.

A slice begins at a step of a request that is drawn: by a hash, so it depends on nothing that the
texts or the load do. Slices together take at most a given share of the seconds of decoding, from
the first slice on: one may begin only when there is room for all of its steps. And they may cost
0.35 of that in tokens (0.7 % with a share of 2 %), the step after a slice included, in which a
draft reads what was written meanwhile: where drafts make texts three times as fast, there are fewer
slices.

Under the coupled rule no text changes by this, and under the rejection rule no distribution.
"""

from hashlib import blake2b

from outdraft.engine.outputs import StepStats, Update
from outdraft.workload.temperatures import temperature_band

_STEPS = 3  # of a slice; the first one counts for nothing (`sides.py`)
_LONGEST_S = 1.0
_CHANCE = 1 / 32  # that a step of a request begins a slice, where there is room for one
_LATELY = 0.05  # weight of the last step
_OF_A_BAND = 1 / 3  # of the slices
# Of the share: what slices took longer than other steps would have. A share of 2 % then costs
# 0.7 %, which leaves room for the canary itself and for a clock's noise.
_MOST_LOST = 0.35
_BAND_STEPS = 4096  # without a text of a band, after which it is not drawn any more


class Canary:
    """Told of every step, says whether the next one is in a slice."""

    def __init__(self, share: float, *, num_steps: int = _STEPS, chance: float = _CHANCE) -> None:
        """`share` of the seconds of decoding; 0: never."""
        self._share, self._num_steps, self._chance = share, num_steps, chance
        self._num_seen = 0  # steps
        self._decoding_s = 0.0  # in steps that wrote something, slices included
        self._slices_s = 0.0
        self._slices_tokens = 0
        self._after_s = 0.0  # that steps right after slices took longer than others
        self._is_after = False  # the next step is such a one
        self._other_s, self._other_tokens = 0.0, 0  # of steps outside of slices, without prompts
        self._step_s = 0.0  # of a step outside of slices, on average lately
        self._owner: str | None = None  # the request whose slice it is
        self._band = ""
        self._bands: dict[str, int] = {}  # of temperatures → the step in which one was seen last
        self._num_left = 0
        self._left_s = 0.0

    @property
    def share(self) -> float:
        return self._share

    def renewed(self, share: float | None = None) -> "Canary":
        """From the beginning, with another share or the same."""
        own = self._share if share is None else share
        return Canary(own, num_steps=self._num_steps, chance=self._chance)

    @property
    def in_slice(self) -> bool:
        return self._owner is not None

    @property
    def band(self) -> str:
        """Of temperatures, that the slice is for; empty: for everybody."""
        return self._band if self.in_slice else ""

    def observe(self, stats: StepStats, updates: list[Update]) -> None:
        if not self._share:
            return
        self._num_seen += 1
        if stats.draft_lengths:
            self._decoding_s += stats.seconds
        self._bands |= {temperature_band(each): self._num_seen for each in stats.temperatures}
        is_after, self._is_after = self._is_after, self._owner is not None
        if self._owner is not None:
            self._go_on(stats, updates)
        elif is_after and stats.is_decoding:
            self._after_s += stats.seconds - self._step_s
        elif stats.is_decoding and (stats.max_k or any(stats.stopped)) and updates:
            self._step_s += (stats.seconds - self._step_s) * (_LATELY if self._step_s else 1.0)
            self._other_s += stats.seconds
            self._other_tokens += stats.num_decoded
            self._begin(stats, updates)

    def _begin(self, stats: StepStats, updates: list[Update]) -> None:
        needed_s = min(self._num_steps * self._step_s, _LONGEST_S)
        going_on = [each.request_id for each in updates if each.finish_reason is None]
        if not going_on or self._slices_s + needed_s > self._share * self._decoding_s:
            return
        limit_s = _MOST_LOST * self._share * self._decoding_s
        if self._lost_s * (1 + needed_s / (self._slices_s or 1.0)) > limit_s:
            return
        first, second = draws(going_on[0], self._num_seen)
        if first < self._chance:
            self._owner, self._num_left, self._left_s = going_on[0], self._num_steps, _LONGEST_S
            self._band = "" if stats.is_stopped else self._drawn_band(stats, second)

    @property
    def _lost_s(self) -> float:
        """Seconds that slices took longer than other steps would have for the same tokens."""
        pace = self._other_s / (self._other_tokens or 1)
        return max(0.0, self._slices_s + self._after_s - self._slices_tokens * pace)

    def _drawn_band(self, stats: StepStats, draw: float) -> str:
        """Every band has the same chance in every step that it is in, whichever others are: else
        slices of a band would not be like its other steps."""
        lately = self._num_seen - _BAND_STEPS
        bands = sorted(band for band, seen in self._bands.items() if seen > lately)
        if len(bands) < 2 or draw >= _OF_A_BAND:
            return ""
        band = bands[int(draw / _OF_A_BAND * len(bands))]
        return band if band in map(temperature_band, stats.temperatures) else ""

    def _go_on(self, stats: StepStats, updates: list[Update]) -> None:
        """The slice ends after its steps, with its request, and when a prompt comes, whose time
        would say nothing."""
        self._slices_s += stats.seconds
        self._slices_tokens += stats.num_decoded
        self._num_left -= 1
        self._left_s -= stats.seconds
        own = [each.finish_reason for each in updates if each.request_id == self._owner]
        goes_on = own and None in own and stats.is_decoding
        if not goes_on or self._num_left <= 0 or self._left_s <= 0:
            self._owner = None


def draws(request_id: str, num_step: int) -> tuple[float, float]:
    """From 0 to 1, the same for the same request and step, and as good as random over them."""
    digest = blake2b(f"{request_id} {num_step}".encode(), digest_size=16).digest()
    return int.from_bytes(digest[:8]) / 2**64, int.from_bytes(digest[8:]) / 2**64
