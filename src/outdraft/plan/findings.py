"""What a plan says about a pair: a value, its limit, and what to do when it is beyond it."""

from __future__ import annotations

from dataclasses import dataclass

OK, WARN, UNKNOWN = "ok", "warn", "unknown"

# The rules people use. The verdict's thresholds have the same numbers.
MAX_DRAFT_SHARE = 0.15
MIN_HEADROOM = 0.20
MAX_TARGET_SHARE = 0.70
SMALLEST_RATIO, LARGEST_RATIO = 8.0, 12.0


@dataclass(frozen=True, slots=True)
class Finding:
    name: str
    state: str  # ok, warn or unknown
    value: float | str
    limit: str
    advice: str = ""  # empty when all is well


@dataclass(frozen=True, slots=True)
class Shares:
    """Of one device's memory, the fullest one's."""

    target: float
    draft: float
    headroom: float  # what the KV cache gets


def rules(shares: Shares, *, has_draft: bool) -> tuple[Finding, ...]:
    target = _rule(
        "target_memory",
        shares.target,
        f"at most {MAX_TARGET_SHARE:.0%} of memory",
        "the target alone fills most of the memory: quantize it or add a device first",
        bad=shares.target > MAX_TARGET_SHARE,
    )
    draft = _rule(
        "draft_memory",
        shares.draft,
        f"at most {MAX_DRAFT_SHARE:.0%} of memory",
        "the draft's memory comes out of the KV cache: quantize it or take a smaller one",
        bad=shares.draft > MAX_DRAFT_SHARE,
    )
    headroom = _rule(
        "headroom",
        shares.headroom,
        f"at least {MIN_HEADROOM:.0%} of memory for the KV cache",
        "little is left for the KV cache: batches will be small and requests preempted",
        bad=shares.headroom < MIN_HEADROOM,
    )
    return (target, draft, headroom) if has_draft else (target, headroom)


def size_ratio_finding(ratio: float) -> Finding:
    return _rule(
        "size_ratio",
        ratio,
        f"1:{SMALLEST_RATIO:g} to 1:{LARGEST_RATIO:g}",
        "the draft is large beside the target: its own passes eat the gain"
        if ratio < SMALLEST_RATIO
        else "the draft is small beside the target: cheap, but it may guess badly",
        bad=not SMALLEST_RATIO <= ratio <= LARGEST_RATIO,
    )


def _rule(name: str, value: float, limit: str, advice: str, *, bad: bool) -> Finding:
    return Finding(name, WARN if bad else OK, value, limit, advice if bad else "")
