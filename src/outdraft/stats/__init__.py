"""Percentiles, paired ratios with intervals, and when to stop measuring. Pure: no clock, no files,
and the only randomness comes from the given seeds."""
