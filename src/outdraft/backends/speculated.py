"""Did it really speculate? The proof from an engine's own counters, before and after a warm-up.

Pure: it sees two /metrics pages. Engines start without a word when speculation is left off by a
missing flag, and a trial of such an arm would measure the baseline against itself.
"""

from __future__ import annotations

from collections.abc import Mapping

from outdraft.backends.backend import Backend
from outdraft.metrics_page import difference
from outdraft.speculation import Speculation

# A warm-up that everything can draft for: an answer that repeats its prompt, and itself.
REPEATING = (
    "Repeat these lines word for word, then repeat them again: the red fox ran home. "
    "the red fox ran home. the red fox ran home. the red fox ran home. the red fox ran home."
)

_USUAL_REASONS = {
    "llamacpp": "llama-server leaves speculation off unless --spec-type names a kind; -md alone "
    "only loads the draft",
    "vllm": "see whether its log repeats --speculative-config; a draft length of 0 for this batch "
    "size also drafts nothing",
    "sglang": "see whether its log names the speculative algorithm; adaptive steps may have gone "
    "to 0",
    "outdraft": "see what method its log names at the start",
}


def why_not_as_asked(
    backend: Backend,
    speculation: Speculation,
    before: Mapping[str, float],
    after: Mapping[str, float],
) -> str | None:
    """None where the counters prove what was asked for; else the reason to fail a trial, in a line.

    `before` and `after` are the engine's pages around requests that have finished: llama.cpp
    counts a request when it is complete.
    """
    counts = backend.drafted(difference(after, before))
    drafted = 0 if counts is None else counts.num_draft_tokens or counts.num_drafts
    if speculation.is_off:
        return (
            f"{backend.name} drafted {drafted} tokens though speculation is off; look for flags or "
            "variables that turn it on"
            if drafted
            else None
        )
    if drafted:
        return None
    counted = "counts no drafts at all" if counts is None else "drafted nothing in the warm-up"
    hints = []
    if speculation.method in ("ngram", "suffix"):
        hints.append(
            f"{speculation.method} drafts only where a text repeats itself, so warm up with one "
            "that does"
        )
    if usual := _USUAL_REASONS.get(backend.name):
        hints.append(usual)
    said = f"; {'; '.join(hints)}" if hints else ""
    return f"{backend.name} was started with method {speculation.method} but {counted}{said}"
