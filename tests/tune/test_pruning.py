"""What the plan says of a proposer before anything is started."""

from __future__ import annotations

from pathlib import Path

from outdraft.backends.backend import Serving
from outdraft.speculation import OFF, Speculation
from outdraft.testing.tiny_models import tiny_model
from outdraft.tune.pruning import pruner

SMALL = Speculation("draft_model", k=5, draft="llama-3.2-1b")
LARGE = Speculation("draft_model", k=5, draft="llama-3.1-70b")
SERVING = Serving(target="llama-3.1-8b", max_model_len=8192, max_num_seqs=8)


def test_what_fits_is_tried() -> None:
    check = pruner(SERVING, "h100")
    assert check.unfit(SMALL) is None
    shares = check.shares(SMALL)
    assert shares is not None
    assert 0 < shares.draft < shares.target < 0.5
    memory = check.memory(SMALL)
    assert memory is not None
    assert memory.target > memory.draft > 0
    assert memory.target + memory.draft + memory.kv + memory.free == memory.total == 80 * 10**9


def test_what_does_not_fit_is_not() -> None:
    assert "it does not fit" in (pruner(SERVING, "h100").unfit(LARGE) or "")


def test_room_for_less_than_one_text() -> None:
    long = Serving(target="llama-3.1-8b", max_model_len=131072, max_num_seqs=1)
    reason = pruner(long, "a10").unfit(SMALL) or ""
    assert "less than one text of full length" in reason


def test_without_a_draft_or_a_device_nothing_is_said() -> None:
    assert pruner(SERVING, "h100").unfit(Speculation("ngram", k=5)) is None
    check = pruner(SERVING, None)
    assert check.unfit(LARGE) is None
    assert check.shares(LARGE) is None
    memory = check.memory(OFF)
    assert memory is not None
    assert (memory.draft, memory.total) == (0, 0)
    assert "--gpu" in memory.note


def test_models_that_nobody_knows_are_left_to_the_engine() -> None:
    check = pruner(Serving(target="someone/something"), "h100")
    assert check.unfit(SMALL) is None
    assert (check.memory(SMALL), check.shares(SMALL), check.pairing(SMALL)) == (None, None, None)


def test_the_pair(tmp_path: Path) -> None:
    target = str(tiny_model(tmp_path / "target", "llama", layers=4))
    draft = str(tiny_model(tmp_path / "draft", "llama"))
    check = pruner(Serving(target=target), None)
    found = check.pairing(Speculation("draft_model", k=5, draft=draft))
    assert found is not None
    assert found.same_tokenizer is True
    assert found.size_ratio is not None
    assert found.size_ratio > 1
    assert check.pairing(Speculation("ngram", k=5)) is None


def test_a_head_of_another_target_is_not_tried(tmp_path: Path) -> None:
    target = str(tiny_model(tmp_path / "target", "llama"))
    head = Speculation("eagle", k=5, draft="smollm2-135m-eagle")
    reason = pruner(Serving(target=target), None).unfit(head) or ""
    assert "the head reads hidden states of" in reason
