"""What drafts may cost before they have paid: two accounts in seconds."""

from __future__ import annotations

_PROBE_SHARE = 0.01  # of the time
_MOST_PROBES = 1.0  # in plain steps: savings for one large probe
_LOSS_SHARE = 0.003  # of the time
_ALLOWANCE = 6.0  # in plain steps: losses while nothing is known yet
_RESUME = 0.3  # of the allowance: drafts are held back until there is so much again


class Ledger:
    """Every round pays in a little. A probe is paid in full from the first account. What drafts
    gain or lose against a plain step goes to the second; while it is empty, none are made."""

    def __init__(self) -> None:
        self._probes = 0.0  # seconds
        self._balance: float | None = None  # plain steps
        self.is_held_back = False

    @property
    def for_probes(self) -> float:
        """Seconds."""
        return self._probes

    def pay_probes(self, seconds: float) -> None:
        self._probes -= seconds

    def settle(self, plain: float, expected: float, emitted: float) -> None:
        """A round: seconds of a plain step, of what was done, and the tokens that a sequence got
        on average."""
        self._probes = min(self._probes + _PROBE_SHARE * expected, _MOST_PROBES * plain)
        steps = expected / plain
        saved = emitted - steps
        balance = _ALLOWANCE if self._balance is None else self._balance
        self._balance = min(balance + saved + _LOSS_SHARE * steps, _ALLOWANCE)
        if self._balance < 0:
            self.is_held_back = True
        elif self._balance > _RESUME * _ALLOWANCE:
            self.is_held_back = False
