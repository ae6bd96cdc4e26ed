"""Exact chances of counts, by whole numbers."""

from math import comb


def chance_of_so_few(num_hits: int, num_tries: int, other_hits: int, other_tries: int) -> float:
    """Fisher's exact test, one-sided: if hits are as likely in both samples, the chance that the
    first one has `num_hits` of them or fewer, given how many both have together."""
    num_all, num_misses = num_tries + other_tries, num_tries + other_tries - num_hits - other_hits
    ways = sum(  # by the misses in the first sample: where they decide, those are many
        comb(num_tries, misses) * comb(other_tries, num_misses - misses)
        for misses in range(num_tries - num_hits, min(num_misses, num_tries) + 1)
    )
    return ways / comb(num_all, num_misses)
