"""Checks of a plan and of a verdict: a value, its threshold, and what to do when it is beyond."""

from dataclasses import dataclass

OK, WARN, FAIL, UNKNOWN = "ok", "warn", "fail", "unknown"

# Rules of thumb. The verdict's thresholds have the same numbers.
MAX_DRAFT_SHARE = 0.15
MIN_HEADROOM = 0.20
MAX_TARGET_SHARE = 0.70
SMALLEST_RATIO, LARGEST_RATIO = 8.0, 12.0


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    value: float | str | None
    threshold: str
    state: str  # ok, warn, fail or unknown
    advice: str = ""  # empty when all is well


@dataclass(frozen=True, slots=True)
class Pairing:
    """How a draft fits its target. None: there is nothing to compare."""

    size_ratio: float | None = None  # parameters that a token passes, the target's over the draft's
    same_family: bool | None = None
    same_tokenizer: bool | None = None
    findings: tuple[Check, ...] = ()


@dataclass(frozen=True, slots=True)
class Shares:
    """Shares of the fullest device's memory."""

    target: float
    draft: float
    headroom: float  # what the KV cache gets


def make_check(
    name: str, value: float | str, threshold: str, advice: str, *, is_bad: bool, state: str = WARN
) -> Check:
    """The state and the advice are those of a check that `is_bad`."""
    return Check(name, value, threshold, state if is_bad else OK, advice if is_bad else "")


def rules(shares: Shares, *, has_draft: bool) -> tuple[Check, ...]:
    """The three rules on memory; without a draft there is none for it."""
    target = make_check(
        "target_memory",
        shares.target,
        f"at most {MAX_TARGET_SHARE:.0%} of memory",
        "the target alone fills most of the memory: quantize it or add a device first",
        is_bad=shares.target > MAX_TARGET_SHARE,
    )
    draft = make_check(
        "draft_memory",
        shares.draft,
        f"at most {MAX_DRAFT_SHARE:.0%} of memory",
        "the draft's memory comes out of the KV cache: quantize it or take a smaller one",
        is_bad=shares.draft > MAX_DRAFT_SHARE,
    )
    headroom = make_check(
        "headroom",
        shares.headroom,
        f"at least {MIN_HEADROOM:.0%} of memory for the KV cache",
        "little is left for the KV cache: batches will be small and requests preempted",
        is_bad=shares.headroom < MIN_HEADROOM,
    )
    return (target, draft, headroom) if has_draft else (target, headroom)


def size_ratio_check(ratio: float) -> Check:
    return make_check(
        "size_ratio",
        ratio,
        f"1:{SMALLEST_RATIO:g} to 1:{LARGEST_RATIO:g}",
        "the draft is large beside the target: its own passes eat the gain"
        if ratio < SMALLEST_RATIO
        else "the draft is small beside the target: cheap, but it may guess badly",
        is_bad=not SMALLEST_RATIO <= ratio <= LARGEST_RATIO,
    )
