"""Proof that an engine speculates, by its own counters before and after a warm-up.

Engines start without a word when a missing flag leaves speculation off, and a trial of such an arm
would measure the baseline against itself.
"""

from collections.abc import Mapping

from outdraft.backends.backend import Backend
from outdraft.backends.checks import hint_for
from outdraft.observe import page_difference, read_acceptance
from outdraft.speculation import Speculation

# A warm-up that everything can draft for: an answer that repeats its prompt, and itself.
REPEATING = (
    "Repeat these lines word for word, then repeat them again: the red fox ran home. "
    "the red fox ran home. the red fox ran home. the red fox ran home. the red fox ran home."
)


def speculation_mismatch(
    backend: Backend,
    speculation: Speculation,
    before: Mapping[str, float],
    after: Mapping[str, float],
) -> str | None:
    """None where the counters prove that the engine does what it was started for; else why not.

    `before` and `after` are its /metrics pages around requests that have finished: llama.cpp
    counts a request when it is complete.
    """
    counts = read_acceptance(page_difference(after, before))
    drafted = 0 if counts is None else counts.num_draft_tokens or counts.num_drafts
    if bool(drafted) != speculation.is_off:
        return None
    if speculation.is_off:
        return (
            f"{backend.name} drafted {drafted} tokens though speculation is off; look for flags or "
            "variables that turn it on"
        )
    hint = hint_for(backend, "no drafts")
    if speculation.method in ("ngram", "suffix"):
        hint = (
            f"{speculation.method} drafts only where a text repeats itself, so warm up with one "
            f"that does; {hint}"
        )
    counted = "counts no drafts at all" if counts is None else "drafted nothing in the warm-up"
    return f"{backend.name} was started with method {speculation.method} but {counted}; {hint}"
