"""What measurements prove: percentiles, paired ratios with intervals, when to stop. Pure.

    looks = plan_looks(max_blocks=20)
    ratio = median_ratio(blocks[: looks[0].num_blocks], level=looks[0].level)
    zone(ratio)  # win, lose, tie or unclear

No clock, no files, no randomness but that of the seeds given.
"""

from __future__ import annotations

from outdraft.stats.percentiles import percentile, percentile_interval
from outdraft.stats.ratios import (
    DRAWS,
    MIN_BLOCKS,
    Pair,
    Ratio,
    Throughput,
    median_ratio,
    percentile_ratio,
    throughput_ratio,
)
from outdraft.stats.sequential import (
    DELTA,
    Look,
    Zone,
    noise_floor,
    pairs_needed,
    plan_looks,
    possible_zones,
    zone,
)

__all__ = [
    "DELTA",
    "DRAWS",
    "MIN_BLOCKS",
    "Look",
    "Pair",
    "Ratio",
    "Throughput",
    "Zone",
    "median_ratio",
    "noise_floor",
    "pairs_needed",
    "percentile",
    "percentile_interval",
    "percentile_ratio",
    "plan_looks",
    "possible_zones",
    "throughput_ratio",
    "zone",
]
