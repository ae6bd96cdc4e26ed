"""Short slices of decoding without speculation, by which is seen what it is worth now.

What a plain server would need cannot be seen from one request without drafts: it shares its steps
with the verification of others. So in a slice nobody gets drafts, for a few steps. Where an
operator turned drafts off it is the other way round: in a slice texts get drafts. A slice begins
at a step of a request that is drawn: by a hash, so it depends on nothing that the texts or the load
do. Slices together take at most a given share of the seconds of decoding, from the first slice on:
one may begin only when there is room for all of its steps.

Under the coupled rule no text changes by this, and under the rejection rule no distribution.
"""

from hashlib import blake2b

from outdraft.engine.outputs import StepStats, Update

_STEPS = 3  # of a slice; the first one counts for nothing (`sides.py`)
_LONGEST_S = 1.0
_CHANCE = 1 / 32  # that a step of a request begins a slice, where there is room for one
_LATELY = 0.05  # weight of the last step


class Canary:
    """Told of every step, says whether the next one is in a slice."""

    def __init__(self, share: float, *, num_steps: int = _STEPS, chance: float = _CHANCE) -> None:
        """`share` of the seconds of decoding; 0: never."""
        self._share, self._num_steps, self._chance = share, num_steps, chance
        self._num_seen = 0  # steps
        self._decoding_s = 0.0  # in steps that wrote something, slices included
        self._slices_s = 0.0
        self._step_s = 0.0  # of a step outside of slices, on average lately
        self._owner: str | None = None  # the request whose slice it is
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

    def observe(self, stats: StepStats, updates: list[Update]) -> None:
        if not self._share:
            return
        self._num_seen += 1
        if stats.draft_lengths:
            self._decoding_s += stats.seconds
        if self._owner is not None:
            self._go_on(stats, updates)
        elif stats.is_decoding and (stats.max_k or stats.is_stopped) and updates:
            self._step_s += (stats.seconds - self._step_s) * (_LATELY if self._step_s else 1.0)
            self._begin(updates)

    def _begin(self, updates: list[Update]) -> None:
        needed_s = min(self._num_steps * self._step_s, _LONGEST_S)
        going_on = [each.request_id for each in updates if each.finish_reason is None]
        if not going_on or self._slices_s + needed_s > self._share * self._decoding_s:
            return
        if is_drawn(going_on[0], self._num_seen, self._chance):
            self._owner, self._num_left, self._left_s = going_on[0], self._num_steps, _LONGEST_S

    def _go_on(self, stats: StepStats, updates: list[Update]) -> None:
        """The slice ends after its steps, with its request, and when a prompt comes, whose time
        would say nothing."""
        self._slices_s += stats.seconds
        self._num_left -= 1
        self._left_s -= stats.seconds
        own = [each.finish_reason for each in updates if each.request_id == self._owner]
        goes_on = own and None in own and stats.is_decoding
        if not goes_on or self._num_left <= 0 or self._left_s <= 0:
            self._owner = None


def is_drawn(request_id: str, num_step: int, chance: float) -> bool:
    """The same for the same request and step, and as good as random over them."""
    digest = blake2b(f"{request_id} {num_step}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) < chance * 2**64
