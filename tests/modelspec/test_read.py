"""ModelSpec from config.json + safetensors, on small real files written here."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from outdraft.errors import CorruptFileError, ModelError, UnsupportedArchitectureError
from outdraft.modelspec import RopeScaling, inverse_frequencies, read_modelspec, weight_files

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 4,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10_000.0,
    "eos_token_id": 2,
    "bos_token_id": 1,
    "tie_word_embeddings": True,
}
LLAMA3_SCALING = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 128,
}
TENSORS = {
    "model.embed_tokens.weight": np.zeros((100, 32), np.float16),
    "model.norm.weight": np.ones(32, np.float32),
}


def write_model(
    folder: Path,
    tensors: dict[str, Any] | None = None,
    generation: dict[str, Any] | None = None,
    without: str = "",
    **changes: Any,
) -> Path:
    folder.mkdir(exist_ok=True)
    config = {key: value for key, value in {**LLAMA, **changes}.items() if key != without}
    (folder / "config.json").write_text(json.dumps(config))
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation))
    save_file(TENSORS if tensors is None else tensors, folder / "model.safetensors")
    return folder


def test_reads_shape_and_sizes(tmp_path: Path) -> None:
    spec = read_modelspec(write_model(tmp_path))
    assert (spec.family, spec.num_layers, spec.head_dim, spec.num_kv_heads) == ("llama", 4, 8, 2)
    assert spec.eos_ids == (2,)
    assert spec.bos_id == 1
    assert spec.num_parameters == 100 * 32 + 32
    assert spec.bytes_by_dtype == {"F16": 6400, "F32": 128}
    assert spec.num_bytes == 6528
    assert spec.kv_bytes_per_token(2) == 2 * 4 * 2 * 8 * 2
    assert spec.windows == (None,) * 4
    assert spec.rope_layers == (True,) * 4
    assert len({spec, spec}) == 1  # can be a key


def test_a_stored_tied_head_is_counted_once(tmp_path: Path) -> None:
    head = {"lm_head.weight": np.zeros((100, 32), np.float16)}
    inv_freq = {"model.layers.0.self_attn.rotary_emb.inv_freq": np.zeros(4, np.float32)}
    folder = write_model(tmp_path, tensors={**TENSORS, **head, **inv_freq})
    assert read_modelspec(folder).num_parameters == 3232
    folder = write_model(tmp_path, tensors={**TENSORS, **head}, tie_word_embeddings=False)
    assert read_modelspec(folder).num_parameters == 6432


def test_generation_config_wins_for_the_end_tokens(tmp_path: Path) -> None:
    folder = write_model(tmp_path, generation={"eos_token_id": [7, 8]})
    assert read_modelspec(folder).eos_ids == (7, 8)


@pytest.mark.parametrize(
    ("changes", "qkv", "o", "mlp", "norm"),
    [
        ({"model_type": "llama"}, False, False, False, False),
        (
            {"model_type": "llama", "attention_bias": True, "mlp_bias": True},
            True,
            True,
            True,
            False,
        ),
        ({"model_type": "mistral"}, False, False, False, False),
        ({"model_type": "qwen2"}, True, False, False, False),
        ({"model_type": "qwen3"}, False, False, False, True),
        ({"model_type": "smollm3", "attention_bias": True}, True, True, False, False),
    ],
)
def test_biases_and_norms_by_family(
    tmp_path: Path, changes: dict[str, Any], qkv: bool, o: bool, mlp: bool, norm: bool
) -> None:
    spec = read_modelspec(write_model(tmp_path, **changes))
    assert (spec.qkv_bias, spec.o_bias, spec.mlp_bias, spec.qk_norm) == (qkv, o, mlp, norm)


@pytest.mark.parametrize(
    ("changes", "windows"),
    [
        ({"model_type": "mistral", "sliding_window": 16}, (16, 16, 16, 16)),
        ({"model_type": "mistral", "sliding_window": None}, (None,) * 4),
        ({"model_type": "qwen2", "sliding_window": 16}, (None,) * 4),
        (
            {
                "model_type": "qwen2",
                "sliding_window": 16,
                "use_sliding_window": True,
                "max_window_layers": 3,
            },
            (None, None, None, 16),
        ),
        (
            {
                "model_type": "qwen3",
                "sliding_window": 16,
                "use_sliding_window": True,
                "layer_types": ["sliding_attention", "full_attention"] * 2,
            },
            (16, None, 16, None),
        ),
        (
            {"model_type": "smollm3", "sliding_window": 16, "use_sliding_window": True},
            (None, None, None, 16),
        ),
    ],
)
def test_windows(tmp_path: Path, changes: dict[str, Any], windows: tuple[int | None, ...]) -> None:
    assert read_modelspec(write_model(tmp_path, **changes)).windows == windows


def test_smollm3_layers_without_rope(tmp_path: Path) -> None:
    folder = write_model(tmp_path, model_type="smollm3", without="rope_theta")
    spec = read_modelspec(folder)
    assert spec.rope_layers == (True, True, True, False)
    assert spec.rope_theta == 2_000_000.0
    folder = write_model(tmp_path, model_type="smollm3", no_rope_layers=[0, 1, 1, 1])
    assert read_modelspec(folder).rope_layers == (False, True, True, True)


def test_qwen3_has_its_own_head_size(tmp_path: Path) -> None:
    assert read_modelspec(write_model(tmp_path, model_type="qwen3")).head_dim == 128
    assert read_modelspec(write_model(tmp_path, model_type="qwen3", head_dim=16)).head_dim == 16


@pytest.mark.parametrize(
    "changes",
    [
        {"rope_scaling": {"rope_type": "llama3", **LLAMA3_SCALING}, "rope_theta": 500_000.0},
        {"rope_parameters": {"rope_type": "llama3", "rope_theta": 500_000.0, **LLAMA3_SCALING}},
    ],
)
def test_llama3_rope_in_both_spellings(tmp_path: Path, changes: dict[str, Any]) -> None:
    spec = read_modelspec(write_model(tmp_path, **changes))
    assert spec.rope_theta == 500_000.0
    assert spec.rope_scaling == RopeScaling("llama3", 8.0, 1.0, 4.0, 128)


def test_linear_rope_divides_every_frequency(tmp_path: Path) -> None:
    plain = inverse_frequencies(read_modelspec(write_model(tmp_path)))
    scaled = write_model(tmp_path, rope_scaling={"type": "linear", "factor": 4.0})
    np.testing.assert_allclose(inverse_frequencies(read_modelspec(scaled)), plain / 4)
    np.testing.assert_allclose(plain, [1.0, 0.1, 0.01, 0.001])


def test_llama3_frequencies_equal_those_of_transformers(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    rope_utils = pytest.importorskip("transformers.modeling_rope_utils")
    scaling = {"rope_type": "llama3", **LLAMA3_SCALING}
    changes = {"rope_scaling": scaling, "head_dim": 64, "rope_theta": 10_000.0}
    spec = read_modelspec(write_model(tmp_path, **changes))
    config = transformers.LlamaConfig(**{**LLAMA, **changes})
    expected, _ = rope_utils.ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")
    np.testing.assert_allclose(inverse_frequencies(spec), expected.numpy(), rtol=2e-6)


def test_reads_what_transformers_writes(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    for family in ("Llama", "Mistral", "Qwen2", "Qwen3", "SmolLM3"):
        given = {k: v for k, v in LLAMA.items() if k not in ("model_type", "rope_theta")}
        config = getattr(transformers, f"{family}Config")(**given, pad_token_id=0)
        write_model(tmp_path)
        config.save_pretrained(tmp_path)
        spec = read_modelspec(tmp_path)
        assert spec.family == family.lower()
        assert spec.rope_theta == config.rope_parameters["rope_theta"]
        assert spec.tie_embeddings
        assert spec.head_dim == (getattr(config, "head_dim", None) or 8)


def test_shards(tmp_path: Path) -> None:
    write_model(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    for name, (tensor, value) in zip(names, TENSORS.items(), strict=True):
        save_file({tensor: value}, tmp_path / name)
    index = {"weight_map": dict(zip(TENSORS, names, strict=True))}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert [file.name for file in weight_files(tmp_path)] == names
    assert read_modelspec(tmp_path).num_parameters == 3232
    (tmp_path / names[1]).unlink()
    with pytest.raises(CorruptFileError, match=r"missing shard .*00002-of-00002.*1 of the 2"):
        read_modelspec(tmp_path)


@pytest.mark.parametrize("name", ["../model.safetensors", "/dev/zero", "a/../../x", "x\0"])
def test_an_index_names_no_file_outside_its_folder(tmp_path: Path, name: str) -> None:
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"lm_head.weight": name}}))
    with pytest.raises(CorruptFileError, match="names a file outside its folder"):
        weight_files(tmp_path)


def test_truncated_data_names_both_sizes(tmp_path: Path) -> None:
    file = write_model(tmp_path) / "model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[:-5])
    expected = rf"model\.safetensors is cut short: expected .*{len(whole)} .*seen {len(whole) - 5}"
    with pytest.raises(CorruptFileError, match=expected):
        read_modelspec(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "cut short: expected at least 8 bytes, seen 0"),
        (struct.pack("<Q", 500) + b"{}", "expected at least 508 bytes, seen 10"),
        (b"not a safetensors file at all", "not a safetensors file"),
        (struct.pack("<Q", 5) + b"[1,2}", "damaged header"),
        (struct.pack("<Q", 10) + b'{"a": 123}', "damaged header"),
    ],
)
def test_damaged_safetensors(tmp_path: Path, content: bytes, message: str) -> None:
    (write_model(tmp_path) / "model.safetensors").write_bytes(content)
    with pytest.raises(CorruptFileError, match=message):
        read_modelspec(tmp_path)


@pytest.mark.parametrize("key", ["model_type", "num_hidden_layers", "vocab_size", "rms_norm_eps"])
def test_a_missing_key_is_named(tmp_path: Path, key: str) -> None:
    with pytest.raises(CorruptFileError, match=rf"config\.json lacks the key '{key}'"):
        read_modelspec(write_model(tmp_path, without=key))


def test_bad_config_files(tmp_path: Path) -> None:
    write_model(tmp_path, hidden_size="wide")
    with pytest.raises(CorruptFileError, match="wrong kind"):
        read_modelspec(tmp_path)
    (tmp_path / "config.json").write_text("{oops")
    with pytest.raises(CorruptFileError, match=r"config\.json is not JSON"):
        read_modelspec(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(CorruptFileError, match="JSON list"):
        read_modelspec(tmp_path)
    (tmp_path / "config.json").unlink()
    with pytest.raises(ModelError, match=r"no config\.json"):
        read_modelspec(tmp_path)
    with pytest.raises(ModelError, match="no model at"):
        read_modelspec(tmp_path / "nowhere")


def test_a_folder_without_weights(tmp_path: Path) -> None:
    (write_model(tmp_path) / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="no weights in"):
        read_modelspec(tmp_path)


def test_what_is_not_supported_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedArchitectureError, match=r"'gemma3'.*supported: llama, mistral"):
        read_modelspec(write_model(tmp_path, model_type="gemma3"))
    with pytest.raises(
        ModelError, match=r"rope scaling 'yarn'.*supported: default, linear, llama3"
    ):
        read_modelspec(write_model(tmp_path, rope_scaling={"rope_type": "yarn", "factor": 2}))
    with pytest.raises(ModelError, match=r"partial rotary.*0\.5"):
        read_modelspec(write_model(tmp_path, partial_rotary_factor=0.5))
    with pytest.raises(ModelError, match="activation 'gelu'"):
        read_modelspec(write_model(tmp_path, hidden_act="gelu"))
