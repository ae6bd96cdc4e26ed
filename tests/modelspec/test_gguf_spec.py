"""ModelSpec from GGUF headers, on small real files written by the gguf package."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest

from outdraft.errors import CorruptFileError, ModelError, UnsupportedArchitectureError
from outdraft.modelspec import RopeScaling, inverse_frequencies, read_modelspec, read_spec

Change = Callable[[gguf.GGUFWriter], None]


def write_gguf(
    path: Path, arch: str = "llama", change: Change | None = None, context: int | None = 512
) -> Path:
    writer = gguf.GGUFWriter(path, arch)
    writer.add_block_count(4)
    if context is not None:
        writer.add_context_length(context)
    writer.add_embedding_length(32)
    writer.add_feed_forward_length(64)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10_000.0)
    writer.add_token_list([f"token {i}" for i in range(5000)])
    writer.add_eos_token_id(2)
    writer.add_bos_token_id(1)
    writer.add_tensor("token_embd.weight", np.zeros((100, 32), np.float16))
    writer.add_tensor("output_norm.weight", np.ones(32, np.float32))
    if change is not None:
        change(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_reads_shape_and_sizes(tmp_path: Path) -> None:
    spec = read_modelspec(write_gguf(tmp_path / "m.gguf"))
    assert (spec.family, spec.num_layers, spec.head_dim, spec.num_kv_heads) == ("llama", 4, 8, 2)
    assert (spec.hidden_size, spec.vocab_size, spec.max_context) == (32, 100, 512)
    assert spec.rms_eps == pytest.approx(1e-5)
    assert spec.tie_embeddings
    assert not any((spec.qkv_bias, spec.o_bias, spec.mlp_bias, spec.qk_norm))
    assert spec.eos_ids == (2,)
    assert spec.bos_id == 1
    assert spec.num_parameters == 3232
    assert spec.bytes_by_dtype == {"F16": 6400, "F32": 128}


def test_quantized_bytes(tmp_path: Path) -> None:
    def change(writer: gguf.GGUFWriter) -> None:
        raw = gguf.quants.quantize(np.ones((8, 64), np.float32), gguf.GGMLQuantizationType.Q4_1)
        writer.add_tensor("output.weight", raw, raw_dtype=gguf.GGMLQuantizationType.Q4_1)

    spec = read_modelspec(write_gguf(tmp_path / "m.gguf", change=change))
    assert spec.bytes_by_dtype["Q4_1"] == 8 * 64 // 32 * 20
    assert spec.num_parameters == 3232 + 8 * 64
    assert not spec.tie_embeddings


def test_the_header_agrees_with_the_gguf_package(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf")
    reader = gguf.GGUFReader(path)
    spec = read_modelspec(path)
    assert spec.num_parameters == sum(int(tensor.n_elements) for tensor in reader.tensors)
    assert spec.num_bytes == sum(int(tensor.n_bytes) for tensor in reader.tensors)


def test_tensors_say_what_flags_do_not(tmp_path: Path) -> None:
    def qwen2(writer: gguf.GGUFWriter) -> None:
        writer.add_tensor("blk.0.attn_q.bias", np.zeros(32, np.float32))

    def qwen3(writer: gguf.GGUFWriter) -> None:
        writer.add_tensor("blk.0.attn_q_norm.weight", np.ones(16, np.float32))
        writer.add_key_length(16)
        writer.add_eot_token_id(5)
        writer.add_eos_token_id(5)

    spec = read_modelspec(write_gguf(tmp_path / "2.gguf", "qwen2", qwen2))
    assert (spec.family, spec.qkv_bias, spec.o_bias) == ("qwen2", True, False)
    spec = read_modelspec(write_gguf(tmp_path / "3.gguf", "qwen3", qwen3))
    assert (spec.family, spec.qk_norm, spec.head_dim, spec.eos_ids) == ("qwen3", True, 16, (5,))


def test_windows_and_layers_without_rope(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "w.gguf", change=lambda writer: writer.add_sliding_window(16))
    assert read_modelspec(path).windows == (16,) * 4
    spec = read_modelspec(write_gguf(tmp_path / "s.gguf", "smollm3"))
    assert spec.rope_layers == (True, True, True, False)


def test_rope_factors_are_divisors(tmp_path: Path) -> None:
    factors = np.array([1, 1, 2, 8], np.float32)
    path = write_gguf(
        tmp_path / "m.gguf", change=lambda writer: writer.add_tensor("rope_freqs.weight", factors)
    )
    spec = read_modelspec(path)
    assert spec.rope_scaling == RopeScaling("factors", factors=(1.0, 1.0, 2.0, 8.0))
    assert spec.num_parameters == 3232
    np.testing.assert_allclose(inverse_frequencies(spec), [1.0, 0.1, 0.005, 0.000125])


def test_linear_and_unsupported_rope(tmp_path: Path) -> None:
    def scaling(kind: gguf.RopeScalingType) -> Change:
        def change(writer: gguf.GGUFWriter) -> None:
            writer.add_rope_scaling_type(kind)
            writer.add_rope_scaling_factor(4.0)

        return change

    path = write_gguf(tmp_path / "l.gguf", change=scaling(gguf.RopeScalingType.LINEAR))
    assert read_modelspec(path).rope_scaling == RopeScaling("linear", factor=4.0)
    path = write_gguf(tmp_path / "y.gguf", change=scaling(gguf.RopeScalingType.YARN))
    with pytest.raises(ModelError, match="unsupported rope scaling 'yarn'"):
        read_modelspec(path)


def test_unsupported_architectures_are_named(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedArchitectureError, match=r"'gemma3'.*supported: llama, mistral"):
        read_modelspec(write_gguf(tmp_path / "g.gguf", "gemma3"))
    path = write_gguf(tmp_path / "x.gguf", change=lambda writer: writer.add_expert_count(8))
    with pytest.raises(CorruptFileError, match=r"lacks the key 'llama\.expert_used_count'"):
        read_modelspec(path)

    def mixture(writer: gguf.GGUFWriter) -> None:
        writer.add_expert_count(8)
        writer.add_expert_used_count(2)

    path = write_gguf(tmp_path / "m.gguf", change=mixture)
    with pytest.raises(UnsupportedArchitectureError, match="mixture of 8 experts"):
        read_modelspec(path)
    assert read_spec(path).family == "mixtral"


def test_one_part_of_a_split_file_is_refused(tmp_path: Path) -> None:
    path = write_gguf(
        tmp_path / "m.gguf", change=lambda writer: writer.add_uint16("split.count", 3)
    )
    with pytest.raises(ModelError, match="one of 3 parts"):
        read_modelspec(path)


def test_a_missing_key_is_named(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", context=None)
    with pytest.raises(CorruptFileError, match=r"m\.gguf lacks the key 'llama\.context_length'"):
        read_modelspec(path)


def test_every_truncation_is_found(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf")
    whole = path.read_bytes()
    for seen in (0, 3, 10, 100, len(whole) // 2, len(whole) - 6400):
        path.write_bytes(whole[:seen])
        with pytest.raises(CorruptFileError, match=rf"m\.gguf is cut short.*\b{seen}\b"):
            read_modelspec(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PK\x03\x04 a zip" + bytes(32), r"not a GGUF file: it starts with b'PK\\x03\\x04'"),
        (b"GGUF" + struct.pack("<I", 99) + bytes(32), "version 99"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1 << 60), "cut short"),
        (
            b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1) + b"a\xff\xff\0\0",
            "header goes wrong at byte",
        ),
    ],
)
def test_damaged_headers(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=message):
        read_modelspec(path)


@pytest.mark.model
def test_the_default_model(smollm2_path: Path) -> None:
    spec = read_modelspec(smollm2_path)
    assert (spec.num_layers, spec.hidden_size, spec.num_heads, spec.num_kv_heads) == (30, 576, 9, 3)
    assert (spec.vocab_size, spec.max_context, spec.rope_theta) == (49152, 8192, 100_000.0)
    assert spec.num_parameters == 134_515_008
    assert spec.tie_embeddings
