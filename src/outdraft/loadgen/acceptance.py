"""What a server says that speculation did for one request, in the forms that engines use.

A number that an engine does not give stays 0, and the rate or length made of it None.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from outdraft.records import AcceptanceCounts

_MAX_K = 1024  # no engine drafts more in a round
# An event without any of these has nothing for us.
KEYS = frozenset({"metrics", "sglext", "meta_info", "timings"})


def acceptance_in(payload: Mapping[str, Any]) -> AcceptanceCounts | None:
    """The counts in one event of a stream; None where it has none, or none that can be read."""
    try:
        if found := _mapping(_mapping(payload.get("metrics")).get("speculative_decoding")):
            return _vllm(found)
        details = _mapping(payload.get("sglext")).get("spec_tokens_details")
        found = _mapping(details[0] if isinstance(details, list) and details else details)
        found = found or _mapping(payload.get("meta_info"))
        if "spec_verify_ct" in found:
            return _sglang(found)
        if "draft_n" in (found := _mapping(payload.get("timings"))):
            return _llamacpp(found)
    except (TypeError, ValueError):
        return None  # no engine's form
    return None


def _vllm(found: Mapping[str, Any]) -> AcceptanceCounts:
    """vLLM's and our own. `per_step_drafted` is there at vLLM's level `detailed`."""
    return AcceptanceCounts(
        num_drafts=_count(found.get("num_spec_steps")),
        num_draft_tokens=_count(found.get("num_draft_tokens")),
        num_accepted_tokens=_count(found.get("num_accepted_draft_tokens")),
        accepted_per_position=_reached(found.get("acceptance_histogram")),
        drafted_per_position=_reached(_histogram(found.get("per_step_drafted"))),
    )


def _sglang(found: Mapping[str, Any]) -> AcceptanceCounts:
    """The histogram is counted; `spec_num_proposed_drafts` is rounds times the configured length.

    So the rate is too low where SGLang's adaptive mode shortened drafts (its issue 34814), except
    where the real lengths come along. Without either, all but the first token and one for every
    round were accepted drafts.
    """
    rounds = _count(found["spec_verify_ct"])
    histogram = found.get("spec_correct_drafts_histogram") or found.get("spec_accept_histogram")
    accepted = found.get("spec_num_correct_drafts", found.get("spec_accepted_drafts"))
    if histogram:
        accepted = sum(place * _count(each) for place, each in enumerate(histogram))
    elif accepted is None and "completion_tokens" in found:
        accepted = max(0, _count(found["completion_tokens"]) - 1 - rounds)
    lengths = found.get("spec_cap_lens_histogram")
    proposed = found.get("spec_num_proposed_drafts", found.get("spec_proposed_drafts"))
    if lengths:
        proposed = sum(place * _count(each) for place, each in enumerate(lengths))
    return AcceptanceCounts(
        num_drafts=rounds,
        num_draft_tokens=_count(proposed),
        num_accepted_tokens=_count(accepted),
        accepted_per_position=_reached(histogram),
        drafted_per_position=_reached(lengths),
    )


def _llamacpp(found: Mapping[str, Any]) -> AcceptanceCounts:
    """llama.cpp does not count rounds: a rate, and no length."""
    return AcceptanceCounts(
        num_drafts=0,
        num_draft_tokens=_count(found["draft_n"]),
        num_accepted_tokens=_count(found.get("draft_n_accepted")),
    )


def _reached(histogram: Sequence[Any] | None) -> tuple[int, ...]:
    """Rounds by how many were accepted, from 0 on → rounds that accepted place 0, 1, …"""
    counts = [_count(each) for each in histogram or ()]
    return tuple(reversed(list(accumulate(reversed(counts[1:])))))


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
