"""Saved drafts, loaded by those who will run them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO

import pytest
import torch

from outdraft.distill.data.shards import Corpus
from outdraft.distill.saving.folder import save_draft
from outdraft.distill.saving.gguf_file import save_gguf
from outdraft.distill.settings import HeadSize, ModelSize
from outdraft.distill.target import Target, load_target
from outdraft.distill.training.drafts import make_draft
from outdraft.distill.training.head_model import HeadModel
from outdraft.distill.training.small_model import SmallModel
from outdraft.engine.assemble import load_engine
from outdraft.engine.sequence import SamplingParams
from outdraft.engine.tokenizer import load_tokenizer
from outdraft.errors import OutdraftError
from outdraft.modelspec import read_head
from outdraft.modelspec.vocabulary import vocabulary_difference
from outdraft.speculation import OFF, Speculation
from outdraft.testing.tiny_models import tiny_gguf
from outdraft.whole_file import write_text

SIZE = ModelSize(hidden=64, layers=2, heads=4, kv_heads=2, intermediate=96)
PROMPT = [40, 41, 45, 47, 43, 42, 44, 46]


@pytest.fixture(scope="module")
def model(target: Target, corpus: Corpus) -> SmallModel:
    draft = make_draft(target, corpus, SIZE, seed=0)
    assert isinstance(draft, SmallModel)
    with torch.no_grad():  # as livelier weights than a fresh draft's, and exact in bfloat16
        for parameter in draft.parameters():
            grown = parameter * 5 if parameter.ndim > 1 else parameter
            parameter.copy_(grown.to(torch.bfloat16))
    return draft


def own_text(model: SmallModel, count: int) -> list[int]:
    tokens = list(PROMPT)
    for _ in range(count):
        hidden, _ = model.network(torch.tensor([tokens]))
        tokens.append(int(model.network.logits(hidden)[0, -1].argmax()))
    return tokens[len(PROMPT) :]


def engine_text(path: Path, count: int) -> list[int]:
    engine = load_engine(str(path), OFF, kv_cache_bytes=1 << 20)
    [done] = engine.generate([PROMPT], SamplingParams(max_tokens=count, ignore_eos=True))
    return done.tokens


def test_our_engine_loads_a_model(model: SmallModel, target: Target, tmp_path: Path) -> None:
    save_draft(model, target, tmp_path, k=5)
    assert engine_text(tmp_path, 12) == own_text(model, 12)
    assert (
        vocabulary_difference(target.tokenizer.tokens(), load_tokenizer(tmp_path).tokens()) is None
    )
    assert load_tokenizer(tmp_path).chat_template == target.tokenizer.chat_template


@pytest.mark.slow
def test_transformers_loads_a_model(model: SmallModel, target: Target, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    save_draft(model, target, tmp_path, k=5)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    with torch.no_grad():
        logits = theirs(torch.tensor([PROMPT])).logits
        hidden, _ = model.network(torch.tensor([PROMPT]))
        assert torch.allclose(logits, model.network.logits(hidden), atol=1e-3)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    text = "the model and you"
    assert tokenizer(text)["input_ids"] == target.tokenizer.encode(text)


@pytest.mark.parametrize("type_name", ["F16", "Q8_0"])
def test_a_gguf_file_is_the_same_model(
    type_name: str, model: SmallModel, target: Target, tmp_path: Path
) -> None:
    path = tmp_path / "draft.gguf"
    assert save_gguf(model, target, path, type_name)
    assert vocabulary_difference(target.tokenizer.tokens(), load_tokenizer(path).tokens()) is None
    written = engine_text(path, 12)
    same = sum(a == b for a, b in zip(written, own_text(model, 12), strict=True))
    assert same == 12 if type_name == "F16" else same >= 6
    assert list(tmp_path.iterdir()) == [path]


def test_a_gguf_targets_tokenizer_is_kept(tmp_path: Path, corpus: Corpus) -> None:
    target = load_target(str(tiny_gguf(tmp_path / "t.gguf")), device="cpu", dtype="float32")
    draft = make_draft(target, corpus, SIZE, seed=0)
    assert isinstance(draft, SmallModel)
    save_draft(draft, target, tmp_path / "draft", k=5)
    assert save_gguf(draft, target, tmp_path / "draft.gguf", "Q8_0")
    for path in (tmp_path / "draft", tmp_path / "draft.gguf"):
        tokenizer = load_tokenizer(path)
        assert vocabulary_difference(target.tokenizer.tokens(), tokenizer.tokens()) is None
        assert tokenizer.eos_ids[0] == target.tokenizer.eos_ids[0]


@pytest.mark.parametrize("storage", ["bfloat16", "float8", "blocks"])
def test_our_engine_loads_a_head(
    storage: str, target: Target, target_path: Path, corpus: Corpus, tmp_path: Path
) -> None:
    head = make_draft(target, corpus, HeadSize(draft_vocab=100), seed=0)
    assert isinstance(head, HeadModel)
    save_draft(head, target, tmp_path, k=5, storage=storage)
    spec = read_head(tmp_path)
    assert (spec.draft_vocab_size, spec.layer_ids) == (100, head.taps)
    assert spec.norm_before_residual
    speculation = Speculation(method="eagle", k=3, draft=str(tmp_path))
    engine = load_engine(str(target_path), speculation, kv_cache_bytes=1 << 22)
    engine.generate([PROMPT], SamplingParams(max_tokens=12, ignore_eos=True))
    assert engine.acceptance.num_drafts > 0
    again = make_draft(target, corpus, HeadSize(draft_vocab=100), seed=1, start=tmp_path)
    assert torch.allclose(again.saved_fc, head.saved_fc, rtol=0.01)  # type: ignore[union-attr]
    tolerance = 0.01 if storage == "bfloat16" else 0.08
    assert torch.allclose(again.lm_head.weight, head.lm_head.weight, atol=tolerance)  # type: ignore[union-attr]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_disk_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, mode: str) -> IO[bytes]:
        return open("/dev/full", "wb")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", full)
        with pytest.raises(OutdraftError, match="No space left on device; make room"):
            write_text(tmp_path / "README.md", "x" * 100_000)
    assert not (tmp_path / "README.md").exists()


def test_a_file_is_readable_like_any_other_and_nothing_else_is_left(tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    write_text(tmp_path / "README.md", "x")
    assert {each.stat().st_mode for each in tmp_path.iterdir()} == {
        (tmp_path / "other").stat().st_mode
    }
    assert sorted(each.name for each in tmp_path.iterdir()) == ["README.md", "other"]
    with pytest.raises(OutdraftError, match=r"cannot write .*: Not a directory|File exists"):
        write_text(tmp_path / "other" / "README.md", "x")
