"""Models by name, folder and file: the plan's bytes are the files' bytes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from outdraft.errors import CatalogError, CorruptFileError, OptionError
from outdraft.modelspec import HeadSpec, read_modelspec
from outdraft.plan.models import find_model
from outdraft.plan.sizes import num_parameters, total_bytes, weight_bytes
from outdraft.testing.tiny_gguf import GGUF_FAMILIES
from outdraft.testing.tiny_models import FAMILIES, tiny_gguf, tiny_model


@pytest.fixture
def no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTDRAFT_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_folder_is_counted_exactly(tmp_path: Path, family: str) -> None:
    model = find_model(str(tiny_model(tmp_path / "model", family, layers=3, shards=2)))
    spec = read_modelspec(tmp_path / "model")
    assert num_parameters(model.spec) == spec.num_parameters
    assert model.file_bytes == spec.num_bytes == 2 * total_bytes(model.spec, "bf16")
    assert model.notes == ()
    assert model.spec == spec
    size = sum(each.stat().st_size for each in (tmp_path / "model").glob("*.safetensors"))
    assert model.weight_bytes("files") == pytest.approx(size, rel=0.03)


@pytest.mark.parametrize("family", GGUF_FAMILIES)
def test_a_gguf_file_is_counted_exactly(tmp_path: Path, family: str) -> None:
    path = tiny_gguf(tmp_path / "model.gguf", family=family, quant="Q8_0")
    model, spec = find_model(str(path)), read_modelspec(path)
    assert num_parameters(model.spec) == spec.num_parameters
    assert model.file_bytes == spec.num_bytes
    assert (model.source, model.notes) == ("gguf", ())


@pytest.mark.model
def test_the_real_model_within_three_percent_of_its_file(smollm2_path: Path) -> None:
    model = find_model("smollm2-135m")
    assert model.source == "catalog"
    assert num_parameters(model.spec) == 134_515_008
    assert model.weight_bytes("files") == pytest.approx(smollm2_path.stat().st_size, rel=0.03)
    # By the formulas alone: Q4_1 takes 5 bits a value, norms stay in 32, this embedding in 8.5.
    by_part = {part: size * 8 // 16 for part, size in weight_bytes(model.spec, "bf16").items()}
    bits = {"embedding": 8.5, "norms": 32.0}
    formula = sum(count * bits.get(part, 5.0) / 8 for part, count in by_part.items())
    assert formula == pytest.approx(smollm2_path.stat().st_size, rel=0.03)


def test_a_catalog_name_is_not_fetched(no_cache: None, tmp_path: Path) -> None:
    model = find_model("smollm2-135m")
    assert (model.source, model.file_bytes) == ("table", None)
    assert not (tmp_path / "cache").exists()


def test_a_stored_tied_head_is_counted_once(tmp_path: Path) -> None:
    folder = tiny_model(tmp_path / "model", "smollm2")
    before = find_model(str(folder)).file_bytes
    tensors = load_file(folder / "model.safetensors")
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].copy()
    save_file(tensors, folder / "model.safetensors")
    assert find_model(str(folder)).file_bytes == before


def test_files_that_hold_something_else_are_noted(tmp_path: Path) -> None:
    folder = tiny_model(tmp_path / "model", "llama")
    tensors = load_file(folder / "model.safetensors")
    tensors["model.surprise.weight"] = np.zeros((512, 64), np.float32)
    save_file(tensors, folder / "model.safetensors")
    [note] = find_model(str(folder)).notes
    assert "where this architecture has" in note


def test_a_folder_without_weights_is_enough(tmp_path: Path) -> None:
    folder = tiny_model(tmp_path / "model", "llama")
    (folder / "model.safetensors").unlink()
    model = find_model(str(folder))
    assert (model.file_bytes, model.default_quantization) == (None, "bf16")
    with pytest.raises(OptionError, match="has no files to take the quantization from"):
        model.weight_bytes("files")


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    folder = tiny_model(tmp_path / "model", "llama", shards=2)
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(CorruptFileError, match="missing shard"):
        find_model(str(folder))


def test_an_eagle_head_with_an_embedding_of_its_own(tmp_path: Path) -> None:
    config = json.loads((tiny_model(tmp_path / "t", "llama") / "config.json").read_text())
    folder = tmp_path / "head"
    folder.mkdir()
    config |= {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": 100}
    (folder / "config.json").write_text(json.dumps(config))
    spec = find_model(str(folder)).spec
    assert isinstance(spec, HeadSpec)
    assert not spec.has_embedding
    tensor = {"embed_tokens.weight": np.zeros((384, 64), np.float32)}
    save_file(tensor, folder / "model.safetensors")
    model = find_model(str(folder))
    assert isinstance(model.spec, HeadSpec)
    assert model.spec.has_embedding
    assert model.file_bytes == 384 * 64 * 4


@pytest.mark.parametrize(
    ("name", "error", "said"),
    [
        ("llama-3.1-8", OptionError, "did you mean 'llama-3.1-8b'"),
        ("nonsuch", OptionError, "a hub id"),
        ("./nowhere", CatalogError, "no file or folder at"),
        ("nowhere.gguf", CatalogError, "no file or folder at"),
        ("/etc/hostname", CatalogError, "single nameless file"),
    ],
)
def test_names_of_nothing(name: str, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        find_model(name)
