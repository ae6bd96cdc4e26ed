"""Tiny heads: both layouts, always the same, and better than chance where they are fitted."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from outdraft import SamplingParams, Speculation, load_engine
from outdraft.errors import OptionError
from outdraft.testing.tiny_heads import tiny_head
from outdraft.testing.tiny_models import tiny_model


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("heads") / "target", "smollm2")


def test_the_same_seed_gives_the_same_head(target: Path, tmp_path: Path) -> None:
    one, same, other = (
        load_file(tiny_head(tmp_path / name, target, seed=seed) / "model.safetensors")
        for name, seed in (("a", 0), ("b", 0), ("c", 1))
    )
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["fc.weight"], other["fc.weight"])


def test_the_two_mappings_agree(target: Path, tmp_path: Path) -> None:
    tensors = load_file(tiny_head(tmp_path, target, fitted=False) / "model.safetensors")
    ids = torch.arange(len(tensors["d2t"])) + tensors["d2t"]
    assert torch.equal(tensors["t2d"].nonzero()[:, 0], ids)


def test_a_fitted_head_is_better_than_a_random_one(target: Path, tmp_path: Path) -> None:
    rates = []
    wanted = SamplingParams(
        max_tokens=60, ignore_eos=True, logit_bias=dict.fromkeys(range(40, 48), 9.0)
    )
    for fitted in (True, False):
        head = tiny_head(tmp_path / str(fitted), target, fitted=fitted)
        speculation = Speculation(method="eagle", draft=str(head), k=3)
        engine = load_engine(str(target), speculation, kv_cache_bytes=4 << 20)
        engine.generate([[40, 41, 47, seed, 42] for seed in range(40, 48)], wanted)
        rates.append(engine.acceptance.rate or 0.0)
    assert rates[0] > 2 * rates[1]


def test_an_unknown_layout_is_refused(target: Path, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="unknown layout 'other'"):
        tiny_head(tmp_path, target, layout="other")
