"""What drafts may cost before they have paid: two accounts in seconds."""

from __future__ import annotations

_PROBE_SHARE = 0.005  # of the time
_MOST_PROBES = 1.0  # in plain steps: savings for one large probe
_LOSS_SHARE = 0.003  # of the time
_ALLOWANCE = 4.0  # in plain steps: losses while nothing is known yet
_TRIAL = 1.0  # in plain steps: what may be lost after a wait
_FIRST_WAIT, _LONGEST_WAIT = 128, 256  # rounds; twice as many after each trial that failed
_CATCH_UP_SHARE = 1 / 32  # of what catching up took is booked in each round


class Ledger:
    """Every round pays in a little. A probe is paid in full from the first account. What drafts
    gain or lose against a plain step goes to the second. When that is empty, drafts are held back
    for a while, and then tried again with a small loan. What a draft reads before it can write is
    for many rounds, and booked over as many."""

    def __init__(self) -> None:
        self._probes = 0.0  # seconds
        self._balance = _ALLOWANCE  # plain steps
        self._wait, self._left = _FIRST_WAIT, 0  # rounds: of the next wait, of this one
        self._catch_up = 0.0  # plain steps that are not booked yet

    @property
    def is_held_back(self) -> bool:
        return self._left > 0

    @property
    def for_probes(self) -> float:
        """Seconds."""
        return self._probes

    def pay_probes(self, seconds: float) -> None:
        self._probes -= seconds

    def settle(
        self, plain: float, expected: float, emitted: float, *, catch_up: float = 0.0
    ) -> None:
        """A round: seconds of a plain step, of what was done, and the tokens that a sequence got
        on average. `catch_up`: seconds of that in which a draft read what it had not read yet."""
        self._probes = min(self._probes + _PROBE_SHARE * expected, _MOST_PROBES * plain)
        if self._left:  # what probes gain and lose is theirs
            self._left -= 1
            return
        self._catch_up += catch_up / plain
        booked = _CATCH_UP_SHARE * self._catch_up
        self._catch_up -= booked
        steps = (expected - catch_up) / plain + booked
        self._balance = min(self._balance + emitted - steps + _LOSS_SHARE * steps, _ALLOWANCE)
        if self._balance < 0:
            self._left, self._balance = self._wait, _TRIAL
            self._wait = min(2 * self._wait, _LONGEST_WAIT)
        elif self._balance == _ALLOWANCE:  # all is made up for
            self._wait = max(self._wait // 2, _FIRST_WAIT)
