"""The mathematics of speculation's worth, in one place: tokens, seconds, what is gained."""

from __future__ import annotations


def plain_seconds(num_emitted: int, num_sequences: int, step_seconds: float) -> float:
    """What the tokens of one decoding step would have taken without speculation.

    Plain decoding gives each of the sequences one token a step, and such a step takes
    `step_seconds`.
    """
    return num_emitted / num_sequences * step_seconds


def net_benefit(plain: float, spent: float) -> float:
    """Seconds saved for each second spent: 0 is break-even, 0.5 is 1.5 times as fast."""
    return plain / spent - 1
