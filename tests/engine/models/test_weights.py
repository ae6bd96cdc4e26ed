"""Weights come out under one set of names and in one row order, whatever file they lie in."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from outdraft.engine.models.weights import Weights, open_weights, unpermute
from outdraft.errors import CorruptFileError, ModelError
from outdraft.modelspec.gguf_header import read_gguf_header
from outdraft.modelspec.gguf_layout import gguf_name
from outdraft.testing.tiny_gguf import GGUF_FAMILIES, GGUF_QUANTS, K_QUANTS
from outdraft.testing.tiny_models import tiny_gguf, tiny_model

HEADS, KV_HEADS = 4, 2


def opened(path: Path) -> Weights:
    return open_weights(path, num_heads=HEADS, num_kv_heads=KV_HEADS)


def reader_tensor(path: Path, name: str) -> gguf.gguf_reader.ReaderTensor:
    return next(t for t in gguf.GGUFReader(path).tensors if t.name == name)


def test_names_of_a_folder(tmp_path: Path) -> None:
    weights = opened(tiny_model(tmp_path, "qwen2", layers=1))
    layer = "model.layers.0"
    assert weights.names() == {
        "model.embed_tokens.weight",
        "model.norm.weight",
        "lm_head.weight",
        f"{layer}.input_layernorm.weight",
        f"{layer}.post_attention_layernorm.weight",
        *(f"{layer}.self_attn.{p}_proj.{kind}" for p in "qkv" for kind in ("weight", "bias")),
        f"{layer}.self_attn.o_proj.weight",
        *(f"{layer}.mlp.{p}_proj.weight" for p in ("gate", "up", "down")),
    }
    assert "lm_head.weight" in weights.names()
    assert "lm_head.bias" not in weights.names()


def test_shards_equal_one_file(tmp_path: Path) -> None:
    one = opened(tiny_model(tmp_path / "one", "llama"))
    many = opened(tiny_model(tmp_path / "many", "llama", shards=3))
    assert one.names() == many.names()
    for name in one.names():
        assert torch.equal(one.get(name), many.get(name))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_folder_keeps_its_dtype(tmp_path: Path, dtype: torch.dtype) -> None:
    values = torch.randn(3, 5).to(dtype)
    save_file({"model.norm.weight": values}, tmp_path / "model.safetensors")
    assert torch.equal(opened(tmp_path).get("model.norm.weight"), values)


@pytest.mark.parametrize("quant", GGUF_QUANTS)
def test_every_gguf_type_is_what_the_package_dequantizes(tmp_path: Path, quant: str) -> None:
    path = tiny_gguf(tmp_path / "m.gguf", quant=quant)
    weights = opened(path)
    for name in ("model.embed_tokens.weight", "model.layers.0.mlp.down_proj.weight"):
        tensor = reader_tensor(path, gguf_name(name))
        expected = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        got = weights.get(name)
        kept = {"F16": torch.float16, "BF16": torch.bfloat16}
        assert got.dtype == kept.get(quant, torch.float32)
        np.testing.assert_array_equal(got.float().numpy(), expected)
    assert weights.get("model.norm.weight").dtype == torch.float32


@pytest.mark.parametrize("family", GGUF_FAMILIES)
def test_an_f32_gguf_holds_the_folder_of_the_same_seed(tmp_path: Path, family: str) -> None:
    folder = opened(tiny_model(tmp_path / "folder", family, seed=3))
    file = opened(tiny_gguf(tmp_path / "m.gguf", quant="F32", family=family, seed=3))
    assert folder.names() == file.names()
    for name in folder.names():
        assert torch.equal(folder.get(name), file.get(name)), name


def test_unpermute_is_the_inverse_of_the_converter() -> None:
    rows = torch.arange(2 * 6)  # two heads of six
    halves = rows.reshape(2, 2, 3)
    permuted = halves.transpose(1, 2).reshape(-1)
    assert permuted.tolist()[:6] == [0, 3, 1, 4, 2, 5]
    assert torch.equal(unpermute(permuted, 2), rows)


@pytest.mark.parametrize("quant", ["F32", "Q8_0", "Q4_K"])
def test_llama_rows_are_those_transformers_loads(tmp_path: Path, quant: str) -> None:
    from transformers import AutoModelForCausalLM

    path = tiny_gguf(tmp_path / "m.gguf", quant=quant)
    model = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file=path.name)
    weights = opened(path)
    state = model.state_dict()
    assert weights.names() == set(state)
    for name, expected in state.items():
        torch.testing.assert_close(weights.get(name), expected.float(), rtol=0, atol=1e-6)


def test_our_header_reads_what_the_package_reads(tmp_path: Path) -> None:
    path = tiny_gguf(tmp_path / "m.gguf", quant="Q5_0")
    arrays = ["tokenizer.ggml.tokens", "tokenizer.ggml.token_type"]
    header = read_gguf_header(path, arrays=arrays)
    reader = gguf.GGUFReader(path)
    for key, value in header.values.items():
        assert value == reader.fields[key].contents(), key
    assert "tokenizer.ggml.merges" not in header.values
    for tensor in reader.tensors:
        ours = header.tensors[tensor.name]
        assert (ours.offset, ours.num_bytes) == (tensor.data_offset, tensor.n_bytes)
        assert ours.shape == tuple(reversed(tensor.shape.tolist()))


def test_missing_tensor_names_file_and_tensor(tmp_path: Path) -> None:
    folder = opened(tiny_model(tmp_path / "f", "llama"))
    file = opened(tiny_gguf(tmp_path / "m.gguf"))
    with pytest.raises(CorruptFileError, match=r"f: tensor 'model.layers.9.x' is missing"):
        folder.get("model.layers.9.x")
    with pytest.raises(CorruptFileError, match=r"m\.gguf: tensor 'model.layers.9.x' is missing"):
        file.get("model.layers.9.x")


def test_truncated_safetensors(tmp_path: Path) -> None:
    file = tiny_model(tmp_path, "llama") / "model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[:-100])
    message = f"expected at least {len(whole)} bytes, seen {len(whole) - 100}"
    with pytest.raises(CorruptFileError, match=message):
        opened(tmp_path)
    file.write_bytes(whole[:20])
    with pytest.raises(CorruptFileError, match=r"expected at least \d+ bytes, seen 20"):
        opened(tmp_path)
    file.write_bytes(struct.pack("<Q", 4) + b"nope")
    with pytest.raises(CorruptFileError, match="damaged header"):
        opened(tmp_path)


def test_truncated_gguf_says_both_sizes(tmp_path: Path) -> None:
    path = tiny_gguf(tmp_path / "m.gguf", quant="Q4_0")
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(
        CorruptFileError, match=rf"expected at least \d+ bytes, seen {len(whole) // 2}"
    ):
        opened(path)


@pytest.mark.parametrize("size", [0, 10, 24, 100, 1000, 5000])
def test_gguf_cut_in_its_header(tmp_path: Path, size: int) -> None:
    path = tiny_gguf(tmp_path / "m.gguf")
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(CorruptFileError, match=r"m\.gguf is cut short"):
        opened(path)


def test_not_gguf_at_all(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"<html>" * 20)
    with pytest.raises(CorruptFileError, match="not a GGUF file"):
        opened(path)


def test_gguf_type_that_cannot_be_dequantized(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tensor("output_norm.weight", np.arange(4, dtype=np.int32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ModelError, match=r"'model\.norm\.weight' has the type I32"):
        opened(path).get("model.norm.weight")
    data = path.read_bytes()
    at = data.index(b"output_norm.weight") + len(b"output_norm.weight") + 4 + 8
    path.write_bytes(data[:at] + struct.pack("<I", 250) + data[at + 4 :])
    with pytest.raises(ModelError, match="has the type number 250"):
        opened(path).get("model.norm.weight")


def test_folders_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="neither"):
        opened(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(ModelError, match="convert them to safetensors"):
        opened(tmp_path)
    with pytest.raises(ModelError, match="no such"):
        opened(tmp_path / "nowhere")
    with pytest.raises(ModelError, match="neither a folder"):
        opened(tmp_path / "pytorch_model.bin")


def test_broken_index(tmp_path: Path) -> None:
    folder = tiny_model(tmp_path, "llama", shards=2)
    index = folder / "model.safetensors.index.json"
    contents = json.loads(index.read_text())
    contents["weight_map"]["extra.weight"] = "model-00001-of-00002.safetensors"
    index.write_text(json.dumps(contents))
    with pytest.raises(CorruptFileError, match=r"00001-of-00002.*'extra\.weight' is missing"):
        opened(folder)
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(CorruptFileError, match=r"missing shard .*00002-of-00002\.safetensors"):
        opened(folder)
    index.write_text("{}")
    with pytest.raises(CorruptFileError, match="lacks the key 'weight_map'"):
        opened(folder)


def test_k_types_need_rows_of_256(tmp_path: Path) -> None:
    assert set(K_QUANTS) == {"Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"}
    with pytest.raises(Exception, match="multiple of 256, seen 64"):
        tiny_gguf(tmp_path / "m.gguf", quant="Q4_K", hidden=64)
