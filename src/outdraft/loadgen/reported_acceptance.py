"""The acceptance that a server reports with an answer, in the form of each engine.

A number that an engine does not report stays 0, and rates made from it are None.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from outdraft.acceptance import Acceptance

_MAX_K = 1024  # no engine drafts more in a round
KEYS = frozenset({"metrics", "sglext", "meta_info", "timings"})  # one of these is in the event


def parse_acceptance(payload: Mapping[str, Any]) -> Acceptance | None:
    """The counts in one event of a stream; None if it has none that can be read."""
    try:
        if counts := _mapping(_mapping(payload.get("metrics")).get("speculative_decoding")):
            return _from_vllm(counts)
        details = _mapping(payload.get("sglext")).get("spec_tokens_details")
        counts = _mapping(details[0] if isinstance(details, list) and details else details)
        counts = counts or _mapping(payload.get("meta_info"))
        if "spec_verify_ct" in counts:
            return _from_sglang(counts)
        if "draft_n" in (counts := _mapping(payload.get("timings"))):
            return Acceptance(  # llama.cpp does not count rounds: a rate and no length
                num_draft_tokens=_count(counts["draft_n"]),
                num_accepted_tokens=_count(counts.get("draft_n_accepted")),
            )
    except (TypeError, ValueError):
        return None  # the form of no engine
    return None


def _from_vllm(counts: Mapping[str, Any]) -> Acceptance:
    """vLLM's and our own form. vLLM reports `per_step_drafted` at its level `detailed`."""
    return Acceptance(
        num_drafts=_count(counts.get("num_spec_steps")),
        num_draft_tokens=_count(counts.get("num_draft_tokens")),
        num_accepted_tokens=_count(counts.get("num_accepted_draft_tokens")),
        accepted_per_position=_per_position(counts.get("acceptance_histogram")),
        drafted_per_position=_per_position(_histogram(counts.get("per_step_drafted"))),
    )


def _from_sglang(counts: Mapping[str, Any]) -> Acceptance:
    """The histogram is counted, but `spec_num_proposed_drafts` is rounds times the configured
    draft length. So the rate is too low where SGLang's adaptive mode shortened drafts (its issue
    34814), unless the real lengths are reported. Without either, every token but the first and one
    for each round was an accepted draft token.
    """
    rounds = _count(counts["spec_verify_ct"])
    histogram = counts.get("spec_correct_drafts_histogram") or counts.get("spec_accept_histogram")
    accepted = counts.get("spec_num_correct_drafts", counts.get("spec_accepted_drafts"))
    if histogram:
        accepted = _weighted_sum(histogram)
    elif accepted is None and "completion_tokens" in counts:
        accepted = max(0, _count(counts["completion_tokens"]) - 1 - rounds)
    lengths = counts.get("spec_cap_lens_histogram")
    proposed = counts.get("spec_num_proposed_drafts", counts.get("spec_proposed_drafts"))
    if lengths:
        proposed = _weighted_sum(lengths)
    return Acceptance(
        num_drafts=rounds,
        num_draft_tokens=_count(proposed),
        num_accepted_tokens=_count(accepted),
        accepted_per_position=_per_position(histogram),
        drafted_per_position=_per_position(lengths),
    )


def _weighted_sum(histogram: Sequence[Any]) -> int:
    return sum(tokens * _count(rounds) for tokens, rounds in enumerate(histogram))


def _per_position(histogram: Sequence[Any] | None) -> list[int]:
    """Rounds by their number of tokens, from 0 on → rounds that had position 0, 1, …"""
    counts = [_count(each) for each in histogram or ()]
    return list(accumulate(counts[:0:-1]))[::-1]


def _histogram(lengths: Sequence[Any] | None) -> list[int]:
    counts = Counter(_count(each) for each in lengths or ())
    longest = max(counts, default=-1)
    if longest > _MAX_K:
        raise ValueError(f"{longest} is no draft length")
    return [counts[length] for length in range(longest + 1)]


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _count(value: Any) -> int:
    """A whole number that is not negative; None is 0."""
    if value is None:
        return 0
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r} is no count")
    return value
