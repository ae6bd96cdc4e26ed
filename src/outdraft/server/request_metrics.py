"""The times of one request and what speculation did for it, under vLLM's field names."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from outdraft.acceptance import Acceptance
from outdraft.engine.outputs import Generation


def request_metrics(generations: Sequence[Generation], k: int) -> dict[str, Any]:
    """`k` is the draft length of the request. Times are of the whole request, in ms.

    As in vLLM, `time_to_first_token_ms` starts at the first step: time in the queue is not in it.
    """
    added = min(each.added_ns for each in generations)
    started = min(each.started_ns or each.added_ns for each in generations)
    first = min(each.first_token_ns or started for each in generations)
    last = max(each.finished_ns or first for each in generations)
    num_tokens = sum(len(each.tokens) for each in generations)
    acceptance = Acceptance.total(each.acceptance for each in generations)
    decode_ms = (last - first) / 1e6
    num_gaps = num_tokens - len(generations)
    return {
        "queue_time_ms": (started - added) / 1e6,
        "time_to_first_token_ms": (first - started) / 1e6,
        "generation_time_ms": decode_ms,
        "mean_itl_ms": decode_ms / num_gaps if num_gaps > 0 else None,
        "tokens_per_second": num_gaps / decode_ms * 1e3 if decode_ms and num_gaps > 0 else None,
        "speculative_decoding": speculation_metrics(acceptance, k),
    }


def speculation_metrics(acceptance: Acceptance, k: int) -> dict[str, Any]:
    # Rounds with at least i accepted, for i = 0, 1, …; their differences are the histogram.
    reached = [acceptance.num_drafts, *acceptance.accepted_per_position, 0]
    return {
        "mean_acceptance_length": acceptance.length,
        "draft_acceptance_rate": acceptance.rate,
        "acceptance_histogram": [more - fewer for more, fewer in pairwise(reached)],
        "num_spec_steps": acceptance.num_drafts,
        "num_steps_without_draft": acceptance.num_undrafted,
        "num_accepted_draft_tokens": acceptance.num_accepted_tokens,
        "num_draft_tokens": acceptance.num_draft_tokens,
        "num_spec_tokens": k,
    }
