from __future__ import annotations

from outdraft.backends.embedded import Embedded
from outdraft.backends.llamacpp import LlamaCpp
from outdraft.backends.speculated import why_not_as_asked
from outdraft.metrics_page import parse
from outdraft.speculation import OFF, Speculation

NGRAM = Speculation(method="ngram")
DRAFT = Speculation(method="draft_model", draft="d.gguf")


def page(drafts: int, tokens: int, accepted: int, engine: str = "llamacpp") -> dict[str, float]:
    name = f"{engine}:spec_decode_num"
    return parse(
        f"{name}_drafts_total {drafts}\n{name}_draft_tokens_total {tokens}\n"
        f"{name}_accepted_tokens_total {accepted}\n"
        f'{name}_accepted_tokens_per_pos_total{{position="0"}} {min(drafts, accepted)}\n'
        f'{name}_accepted_tokens_per_pos_total{{position="1"}} 1\n'
    )


def test_counters_are_read_by_their_engines_name() -> None:
    counts = LlamaCpp().drafted(page(3, 13, 7))
    assert counts is not None
    assert (counts.num_drafts, counts.num_draft_tokens, counts.num_accepted_tokens) == (3, 13, 7)
    assert counts.accepted_per_position == (3, 1)
    assert Embedded().drafted(page(3, 13, 7)) is None


def test_only_what_was_drafted_in_between_counts() -> None:
    llamacpp = LlamaCpp()
    assert why_not_as_asked(llamacpp, NGRAM, page(1, 5, 2), page(3, 13, 7)) is None
    assert why_not_as_asked(llamacpp, NGRAM, page(3, 13, 7), page(3, 13, 7)) is not None


def test_silence_is_explained_by_the_engines_usual_reason() -> None:
    said = why_not_as_asked(LlamaCpp(), DRAFT, page(0, 0, 0), page(0, 0, 0))
    assert said is not None
    assert "drafted nothing" in said
    assert "--spec-type" in said
    assert "repeats itself" not in said, "a draft model needs no repetition"
    said = why_not_as_asked(Embedded(), NGRAM, {}, {})
    assert said is not None
    assert "counts no drafts" in said
    assert "repeats itself" in said


def test_an_off_that_drafts_is_no_baseline() -> None:
    assert why_not_as_asked(LlamaCpp(), OFF, page(0, 0, 0), page(0, 0, 0)) is None
    said = why_not_as_asked(LlamaCpp(), OFF, page(0, 0, 0), page(2, 9, 1))
    assert said is not None
    assert "9 tokens" in said
