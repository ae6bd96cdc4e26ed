"""What rounds cost, from what was measured anyway: the speedup and what was accepted. Pure.

Per token a candidate is as much faster as its steps emit more and cost less:

    speedup = tokens per step / cost of a step

Tokens per step follow from the counts, so the cost does from the speedup, on any engine.
"""

from __future__ import annotations

from outdraft.decide.evidence import Costs
from outdraft.records import AcceptanceCounts


def costs_of(
    counts: AcceptanceCounts, num_tokens: int, num_texts: int, speedup: float
) -> Costs | None:
    """`num_tokens` were emitted in `num_texts`, `speedup` times as fast per token as without.

    The first token of a text comes out of its prompt. A step without a draft is taken to cost
    what it costs without speculation. None where rounds are not counted, or where the counts
    do not fit together (requests of others in the server's counters).
    """
    after_first = num_tokens - num_texts
    steps = after_first - counts.num_accepted_tokens
    rounds = counts.num_drafts
    if not rounds or not counts.num_draft_tokens or not 0 < rounds <= steps or speedup <= 0:
        return None
    plain_steps = after_first / speedup  # what all steps cost together
    cost = (plain_steps - (steps - rounds)) / rounds
    return Costs(k=counts.num_draft_tokens / rounds, round=cost) if cost > 0 else None
