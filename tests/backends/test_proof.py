from __future__ import annotations

from outdraft.backends.embedded import Embedded
from outdraft.backends.llamacpp.backend import LlamaCpp
from outdraft.backends.llamacpp.installation import TABLE
from outdraft.backends.proof import speculation_mismatch
from outdraft.observe import parse_page
from outdraft.speculation import OFF, Speculation

NEWEST = TABLE.installation()
NGRAM = Speculation(method="ngram")
DRAFT = Speculation(method="draft_model", draft="d.gguf")


def page(drafts: int, tokens: int, accepted: int, engine: str = "llamacpp") -> dict[str, float]:
    name = f"{engine}:spec_decode_num"
    return parse_page(
        f"{name}_drafts_total {drafts}\n{name}_draft_tokens_total {tokens}\n"
        f"{name}_accepted_tokens_total {accepted}\n"
        f'{name}_accepted_tokens_per_pos_total{{position="0"}} {min(drafts, accepted)}\n'
        f'{name}_accepted_tokens_per_pos_total{{position="1"}} 1\n'
    )


def test_only_what_was_drafted_in_between_counts() -> None:
    llamacpp = LlamaCpp(NEWEST)
    assert speculation_mismatch(llamacpp, NGRAM, page(1, 5, 2), page(3, 13, 7)) is None
    assert speculation_mismatch(llamacpp, NGRAM, page(3, 13, 7), page(3, 13, 7)) is not None


def test_silence_is_explained_by_the_engines_usual_reason() -> None:
    said = speculation_mismatch(LlamaCpp(NEWEST), DRAFT, page(0, 0, 0), page(0, 0, 0))
    assert said is not None
    assert "drafted nothing" in said
    assert "--spec-type" in said
    assert "repeats itself" not in said, "a draft model needs no repetition"
    said = speculation_mismatch(Embedded(), NGRAM, {}, {})
    assert said is not None
    assert "counts no drafts" in said
    assert "repeats itself" in said


def test_an_off_that_drafts_is_no_baseline() -> None:
    assert speculation_mismatch(LlamaCpp(NEWEST), OFF, page(0, 0, 0), page(0, 0, 0)) is None
    said = speculation_mismatch(LlamaCpp(NEWEST), OFF, page(0, 0, 0), page(2, 9, 1))
    assert said is not None
    assert "9 tokens" in said
