from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from outdraft.distill.data.shards import Corpus
from outdraft.distill.settings import HeadSize, ModelSize, TrainSettings
from outdraft.distill.target import Target
from outdraft.distill.training.drafts import make_draft
from outdraft.distill.training.head_model import HeadModel
from outdraft.distill.training.small_model import SmallModel
from outdraft.distill.training.train import TrainingState, train
from outdraft.errors import OptionError
from tests.distill.conftest import no_progress

SIZES = {
    "model": ModelSize(hidden=32, layers=1, heads=2, kv_heads=1, intermediate=48),
    "head": HeadSize(draft_vocab=200),
}
SETTINGS = TrainSettings(
    budget_s=1e6,
    steps=12,
    learning_rate=5e-3,
    batch_tokens=600,
    unroll=3,
    k=3,
    num_measures=1,
    checkpoint_s=0.0,
)


def trained(
    kind: str, target: Target, corpus: Corpus, held_out: Corpus, work: Path, **changes: Any
) -> tuple[SmallModel | HeadModel, TrainingState, list[dict[str, Any]]]:
    draft = make_draft(target, corpus, SIZES[kind], seed=0)
    seen: list[dict[str, Any]] = []
    settings = replace(SETTINGS, **changes)
    course = train(
        draft,
        target,
        corpus,
        held_out,
        work,
        settings,
        no_progress,
        lambda course, one: seen.append(one),
    )
    return draft, course, seen


def mean_loss(draft: SmallModel | HeadModel, target: Target, corpus: Corpus) -> float:
    batch = corpus.batch(range(len(corpus)), torch.device("cpu"))
    with torch.no_grad():
        return float(draft.loss(batch, target, TrainSettings(hard=0.2)))


@pytest.mark.parametrize("kind", ["model", "head"])
def test_a_draft_learns(
    kind: str, target: Target, corpus: Corpus, held_out: Corpus, tmp_path: Path
) -> None:
    fresh = make_draft(target, corpus, SIZES[kind], seed=0)
    draft, course, seen = trained(kind, target, corpus, held_out, tmp_path, steps=40)
    assert mean_loss(draft, target, corpus) < 0.9 * mean_loss(fresh, target, corpus)
    assert course.step == 40
    assert len(seen) == 2  # before and after
    assert set(seen[-1]) == {"0", "0.7", "1"}
    assert set(seen[-1]["0"]["categories"]) == {"chat", "code"}


@pytest.mark.parametrize("kind", ["model", "head"])
def test_a_killed_run_ends_where_an_uninterrupted_one_does(
    kind: str, target: Target, corpus: Corpus, held_out: Corpus, tmp_path: Path
) -> None:
    whole, _, _ = trained(kind, target, corpus, held_out, tmp_path / "whole")

    class KilledError(Exception):
        pass

    def killed(stage: str, share: float, words: str) -> None:
        if words.startswith("step 7,"):
            raise KilledError

    draft = make_draft(target, corpus, SIZES[kind], seed=0)
    with pytest.raises(KilledError):
        train(draft, target, corpus, held_out, tmp_path / "cut", SETTINGS, killed,
              lambda course, one: None)  # fmt: skip
    resumed, course, _ = trained(kind, target, corpus, held_out, tmp_path / "cut")
    assert course.step == 12
    for (name, one), other in zip(
        whole.state_dict().items(), resumed.state_dict().values(), strict=True
    ):
        assert torch.allclose(one, other, atol=1e-6), name


def test_the_checkpoint_of_another_draft_is_refused(
    target: Target, corpus: Corpus, held_out: Corpus, tmp_path: Path
) -> None:
    trained("model", target, corpus, held_out, tmp_path, steps=1)
    with pytest.raises(OptionError, match=r"training.pt is of another draft"):
        trained("head", target, corpus, held_out, tmp_path, steps=1)
    (tmp_path / "training.pt").write_bytes(b"half a file")
    with pytest.raises(OptionError, match=r"training.pt cannot be read"):
        trained("model", target, corpus, held_out, tmp_path, steps=1)


def test_a_head_starts_by_saying_the_last_token_again(target: Target, corpus: Corpus) -> None:
    """With its layer silenced, it is the target one tap before its end."""
    head = make_draft(target, corpus, HeadSize(draft_vocab=384, taps=(0, 1, 3)), seed=0)
    assert isinstance(head, HeadModel)
    with torch.no_grad():
        head.fc.weight[:, :-64] = 0
        head.fc.weight[:, -64:] = torch.eye(64)
        for name, parameter in head.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                parameter.zero_()
    batch = corpus.batch(range(4), torch.device("cpu"))
    [outputs] = head.unroll(batch, target, 1)
    hidden, _ = target.network(batch.tokens)
    expected = target.network.logits(hidden)[:, :-2]
    mine = head.lm_head(outputs)
    # The same directions; how large a state is beside the usual one is lost.
    assert torch.cosine_similarity(mine, expected, dim=-1).min() > 0.99
    assert (mine.norm() / expected.norm()).item() == pytest.approx(1, abs=0.2)


def test_a_draft_vocabulary_has_the_frequent_and_the_ends(target: Target, corpus: Corpus) -> None:
    head = make_draft(target, corpus, HeadSize(draft_vocab=50), seed=0)
    assert isinstance(head, HeadModel)
    kept = head.d2t.tolist()
    counts = corpus.frequencies(384)
    assert set(target.eos_ids) <= set(kept)
    assert kept == sorted(set(kept))
    least = min(int(counts[token]) for token in kept if token not in target.eos_ids)
    assert all(int(counts[token]) <= least for token in range(384) if token not in kept)


def test_settings_that_cannot_be() -> None:
    with pytest.raises(OptionError, match="a learning rate lies between 0 and 1"):
        TrainSettings(learning_rate=3.0)
    with pytest.raises(OptionError, match="a head taps 3 different layers"):
        HeadSize(taps=(1, 1, 2))
    with pytest.raises(OptionError, match="does not split into 3 heads"):
        ModelSize(hidden=64, heads=3)
