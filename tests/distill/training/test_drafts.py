from __future__ import annotations

from pathlib import Path

import pytest
import torch

from outdraft.distill.data.shards import Corpus
from outdraft.distill.saving.folder import save_draft
from outdraft.distill.settings import HeadSize
from outdraft.distill.target import Target
from outdraft.distill.training.drafts import make_draft
from outdraft.distill.training.head_model import HeadModel
from outdraft.errors import OptionError


def made(target: Target, corpus: Corpus, start: Path | None = None, **sizes: int) -> HeadModel:
    head = make_draft(target, corpus, HeadSize(**sizes), seed=len(sizes), start=start)
    assert isinstance(head, HeadModel)
    return head


def test_a_head_that_has_grown_says_what_it_said(
    target: Target, corpus: Corpus, tmp_path: Path
) -> None:
    sizes = {"draft_vocab": 60, "intermediate": 32}
    save_draft(made(target, corpus, **sizes), target, tmp_path, k=5)
    small = made(target, corpus, tmp_path, **sizes)
    large = made(target, corpus, tmp_path, draft_vocab=100, intermediate=48)
    assert large.spec.draft_vocab_size == 100
    assert large.spec.intermediate_size == 48
    batch = corpus.batch([0, 1], target.device)
    with torch.no_grad():
        before, after = (head.unroll(batch, target, 3) for head in (small, large))
        rows = large.to_draft[small.d2t]
        assert (rows >= 0).all()
        for one, other in zip(before, after, strict=True):
            assert torch.allclose(one, other, atol=1e-4)
            assert torch.allclose(small.lm_head(one), large.lm_head(other)[..., rows], atol=1e-3)


def test_sizes_that_are_not_given_stay_as_they_were(
    target: Target, corpus: Corpus, tmp_path: Path
) -> None:
    save_draft(made(target, corpus, draft_vocab=60, intermediate=32), target, tmp_path, k=5)
    again = made(target, corpus, tmp_path)
    assert (again.spec.draft_vocab_size, again.spec.intermediate_size) == (60, 32)
    assert made(target, corpus, tmp_path, draft_vocab=80).spec.intermediate_size == 32
    with pytest.raises(OptionError, match="no such folder of an earlier draft"):
        made(target, corpus, tmp_path / "nowhere")


def test_a_head_does_not_shrink(target: Target, corpus: Corpus, tmp_path: Path) -> None:
    save_draft(made(target, corpus, draft_vocab=60, intermediate=48), target, tmp_path, k=5)
    with pytest.raises(OptionError, match="of other sizes"):
        made(target, corpus, tmp_path, draft_vocab=60, intermediate=32)
