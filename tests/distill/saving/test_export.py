"""GGUF files as folders: the same model to transformers as the file is to our engine."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from outdraft.catalog import resolve
from outdraft.distill.options import STORAGES
from outdraft.distill.saving.export import export_draft
from outdraft.distill.saving.folder import model_config
from outdraft.engine.loading import load_model
from outdraft.engine.models.weights import SafetensorsWeights
from outdraft.engine.runners.runner import Run
from outdraft.engine.tokenizer import load_tokenizer
from outdraft.errors import ModelError, OptionError
from outdraft.modelspec import ModelSpec, RopeScaling, read_head, read_modelspec
from outdraft.modelspec.head import is_packed
from outdraft.modelspec.vocabulary import vocabulary_difference
from outdraft.testing.tiny_gguf import GGUF_FAMILIES
from outdraft.testing.tiny_heads import tiny_head
from outdraft.testing.tiny_models import tiny_gguf, tiny_model

DRAFT = "smollm2-135m-draft"
TOKENS = [40, 41, 45, 47, 43, 42, 44, 46] * 3
ROUNDED = 0.1  # bfloat16 has 8 bits of fraction; rows in a wrong order give more than 1


def engine_logits(name: str) -> Tensor:
    """(tokens, vocab) of the file as our engine runs it."""
    model = load_model(
        resolve(name),
        dtype="float32",
        device="cpu",
        quantization="none",
        kv_cache_bytes=1 << 21,
        max_context=None,
        reuse_prefixes=False,
        on_layer=lambda done, total: None,
    )
    table: list[int] = []
    assert model.pool.grow(table, len(TOKENS))
    return model.runner.run([Run(TOKENS, 0, table, num_logits=len(TOKENS))]).logits


@torch.inference_mode()
def transformers_logits(folder: Path) -> Tensor:
    from transformers import AutoModelForCausalLM

    theirs, seen = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, output_loading_info=True
    )
    assert not seen["missing_keys"]
    assert not seen["unexpected_keys"]
    logits: Tensor = theirs(torch.tensor([TOKENS])).logits[0]
    return logits


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export") / "draft"
    export_draft(DRAFT, folder)
    return folder


def error(ours: Tensor, theirs: Tensor) -> float:
    """Largest difference, as a share of the logits' spread."""
    return float((ours - theirs).abs().max() / ours.std())


@pytest.mark.slow
def test_transformers_computes_the_shipped_draft(shipped: Path) -> None:
    theirs = transformers_logits(shipped)
    assert error(engine_logits(str(shipped)), theirs) < 1e-4
    assert error(engine_logits(DRAFT), theirs) < ROUNDED


def test_the_shipped_drafts_folder_is_whole(shipped: Path) -> None:
    source = resolve(DRAFT).path
    assert (
        vocabulary_difference(load_tokenizer(source).tokens(), load_tokenizer(shipped).tokens())
        is None
    )
    assert load_tokenizer(shipped).chat_template == load_tokenizer(source).chat_template
    assert load_tokenizer(shipped).eos_ids == load_tokenizer(source).eos_ids
    assert read_modelspec(shipped).bytes_by_dtype.keys() == {"BF16"}


@pytest.mark.parametrize("family", GGUF_FAMILIES)
def test_every_family_is_the_same_model(family: str, tmp_path: Path) -> None:
    file = tiny_gguf(tmp_path / "tiny.gguf", family=family, layers=4)
    counts: list[tuple[int, int]] = []
    made = export_draft(str(file), tmp_path / "tiny", on_tensor=lambda *each: counts.append(each))
    assert counts[-1] == (len(counts), len(counts))
    before, after = read_modelspec(file), read_modelspec(tmp_path / "tiny")
    differs = {
        each.name
        for each in fields(ModelSpec)
        if getattr(before, each.name) != getattr(after, each.name)
    }
    assert differs <= {"bytes_by_dtype", "parameter_bytes", "eos_ids"}  # the tokenizer's ends too
    assert made.num_parameters == before.num_parameters
    theirs = transformers_logits(tmp_path / "tiny")
    assert error(engine_logits(str(tmp_path / "tiny")), theirs) < 1e-4
    assert error(engine_logits(str(file)), theirs) < ROUNDED


def test_an_earlier_export_is_replaced(tmp_path: Path) -> None:
    for seed in (0, 1):
        file = tiny_gguf(tmp_path / f"{seed}.gguf", seed=seed)
        export_draft(str(file), tmp_path / "draft")
    assert error(engine_logits(str(file)), engine_logits(str(tmp_path / "draft"))) < ROUNDED


def test_what_is_a_folder_stays_one(tmp_path: Path) -> None:
    folder = tiny_model(tmp_path / "tiny", "llama")
    with pytest.raises(OptionError, match="folder already"):
        export_draft(str(folder), tmp_path / "new")
    with pytest.raises(OptionError, match="storage blocks is for heads"):
        export_draft(DRAFT, tmp_path / "new", "blocks")
    assert not (tmp_path / "new").exists()


def test_a_head_in_every_storage(tmp_path: Path) -> None:
    """Smaller and smaller, and out of blocks again; an earlier storage does not stay behind."""
    target = tiny_model(tmp_path / "target", "llama", layers=3)
    head = tiny_head(tmp_path / "head", target, fitted=False)
    config = json.loads((head / "config.json").read_text())
    config["speculators_config"] = {"verifier": {"name_or_path": str(target)}}
    (head / "config.json").write_text(json.dumps(config))
    sizes = []
    for storage in STORAGES:
        made = export_draft(str(head), tmp_path / "stored", storage)
        assert read_head(tmp_path / "stored") == read_head(head)
        assert is_packed(tmp_path / "stored") == (storage == "blocks")
        sizes.append(made.num_bytes)
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == len(sizes)
    export_draft(str(tmp_path / "stored"), tmp_path / "again")
    before, after = SafetensorsWeights(head), SafetensorsWeights(tmp_path / "again")
    assert not is_packed(tmp_path / "again")
    for name in before.names():
        one, other = before.get(name).float(), after.get(name).float()
        assert torch.allclose(one, other, atol=0.1 * float(one.abs().max())), name


def test_what_config_json_cannot_say_is_refused(tmp_path: Path) -> None:
    spec = read_modelspec(tiny_gguf(tmp_path / "t.gguf"))
    layers = spec.num_layers
    mistral = model_config(replace(spec, windows=(64,) * layers))
    assert (mistral["model_type"], mistral["sliding_window"]) == ("mistral", 64)
    factors = RopeScaling("factors", factors=(1.0,) * (spec.head_dim // 2))
    for wrong in (
        replace(spec, rope_scaling=factors),
        replace(spec, qkv_bias=True),
        replace(spec, family="qwen3", windows=(64,) * layers),
    ):
        with pytest.raises(ModelError, match="own folder"):
            model_config(wrong)
