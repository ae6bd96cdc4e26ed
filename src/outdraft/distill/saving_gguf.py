"""A small model as a GGUF file: what llama.cpp loads.

llama.cpp's rotary embedding turns neighbouring elements, so rows of q and k are put from two
halves into pairs; `engine/models/weights.py` undoes it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf.constants import GGMLQuantizationType
from torch import Tensor

from outdraft.distill.small_model import SmallModel
from outdraft.distill.target import Target
from outdraft.errors import OutdraftError
from outdraft.modelspec import ModelSpec

TYPES = ("F16", "Q8_0")
_FILE_TYPES = {"F16": gguf.LlamaFileType.MOSTLY_F16, "Q8_0": gguf.LlamaFileType.MOSTLY_Q8_0}
_Q8_BLOCK = 32
_TOP = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
}
_BLOCK = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def save_gguf(draft: SmallModel, target: Target, path: Path, type_name: str) -> bool:
    """Writes the file; False where the target's tokenizer has no form that GGUF knows."""
    tokenizer = _tokenizer_values(target)
    if tokenizer is None:
        return False
    beside = path.with_name(f".{path.name}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        writer = gguf.GGUFWriter(beside, "llama")
        _add_shape(writer, draft.spec, path.stem, type_name)
        for key, value, kind, items in tokenizer:
            writer.add_key_value(key, value, kind, items)
        for name, tensor in draft.network.state_dict().items():
            _add_tensor(writer, gguf_name(name), _arranged(name, tensor, draft.spec), type_name)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        with beside.open("rb") as file:
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        raise OutdraftError(f"cannot write {path}: {error.strerror}") from error
    finally:
        beside.unlink(missing_ok=True)
    return True


def gguf_name(name: str) -> str:
    if name in _TOP:
        return _TOP[name]
    _, _, index, *rest, end = name.split(".")
    return f"blk.{index}.{_BLOCK['.'.join(rest)]}.{end}"


def _arranged(name: str, tensor: Tensor, spec: ModelSpec) -> Tensor:
    heads = {"q_proj": spec.num_heads, "k_proj": spec.num_kv_heads}.get(name.split(".")[-2])
    values = tensor.detach().float().cpu()
    if heads is None:
        return values
    halves = values.reshape(heads, 2, -1, values.shape[1])
    return halves.transpose(1, 2).reshape(values.shape)


def _add_tensor(writer: Any, name: str, values: Tensor, type_name: str) -> None:
    array = values.contiguous().numpy()
    if array.ndim == 1:  # norms stay F32 in every file
        writer.add_tensor(name, array)
    elif type_name == "Q8_0" and array.shape[1] % _Q8_BLOCK == 0:
        kind = GGMLQuantizationType.Q8_0
        writer.add_tensor(name, gguf.quants.quantize(array, kind), raw_dtype=kind)
    else:
        writer.add_tensor(name, array.astype(np.float16))


def _add_shape(writer: Any, spec: ModelSpec, name: str, type_name: str) -> None:
    writer.add_name(name)
    writer.add_context_length(spec.max_context)
    writer.add_embedding_length(spec.hidden_size)
    writer.add_block_count(spec.num_layers)
    writer.add_feed_forward_length(spec.intermediate_size)
    writer.add_head_count(spec.num_heads)
    writer.add_head_count_kv(spec.num_kv_heads)
    writer.add_rope_dimension_count(spec.head_dim)
    writer.add_rope_freq_base(spec.rope_theta)
    writer.add_layer_norm_rms_eps(spec.rms_eps)
    writer.add_vocab_size(spec.vocab_size)
    writer.add_file_type(_FILE_TYPES[type_name])


# ---------------------------------------------------------------- tokenizer

Value = tuple[str, Any, gguf.GGUFValueType, gguf.GGUFValueType | None]


def _tokenizer_values(target: Target) -> list[Value] | None:
    path = target.files.path
    return _copied(path) if path.is_file() else _built(target)


def _copied(path: Path) -> list[Value]:
    """Every `tokenizer.` value of a GGUF file as it is."""
    values: list[Value] = []
    for field in gguf.GGUFReader(path).fields.values():
        if field.name.startswith("tokenizer."):
            kind = field.types[0]
            items = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
            values.append((field.name, field.contents(), kind, items))
    return values


def _built(target: Target) -> list[Value] | None:
    """From a folder's tokenizer.json: byte-level BPE, whose splitting rule llama.cpp must know."""
    file = target.files.path / "tokenizer.json"
    if not file.exists():
        return None
    content = json.loads(file.read_text(encoding="utf-8"))
    model = content.get("model", {})
    if model.get("type") != "BPE" or "ByteLevel" not in json.dumps(content.get("pre_tokenizer")):
        return None
    texts = {index: text for text, index in model["vocab"].items()}
    added = {one["id"]: one for one in content.get("added_tokens", [])}
    kinds = gguf.TokenType
    tokens, types = [], []
    for index in range(target.spec.vocab_size):
        if index in added:
            tokens.append(added[index]["content"])
            types.append(kinds.CONTROL if added[index]["special"] else kinds.USER_DEFINED)
        else:
            tokens.append(texts.get(index, f"[PAD{index}]"))
            types.append(kinds.NORMAL if index in texts else kinds.UNUSED)
    merges = [one if isinstance(one, str) else " ".join(one) for one in model["merges"]]
    text, number = gguf.GGUFValueType.STRING, gguf.GGUFValueType.UINT32
    array, flag = gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.BOOL
    name = "tokenizer.ggml"
    values: list[Value] = [
        (f"{name}.model", "gpt2", text, None),
        (f"{name}.pre", _splitting_rule(content), text, None),
        (f"{name}.tokens", tokens, array, text),
        (f"{name}.token_type", [int(one) for one in types], array, gguf.GGUFValueType.INT32),
        (f"{name}.merges", merges, array, text),
        (f"{name}.eos_token_id", target.eos_ids[0], number, None),
        (f"{name}.add_bos_token", target.tokenizer.encode("a") != target.tokenizer.encode(
            "a", add_special=False), flag, None),
    ]  # fmt: skip
    if target.tokenizer.bos_id is not None:
        values.append((f"{name}.bos_token_id", target.tokenizer.bos_id, number, None))
    if target.tokenizer.chat_template is not None:
        template = target.tokenizer.chat_template
        values.append(("tokenizer.chat_template", template, text, None))
    return values


def _splitting_rule(content: dict[str, Any]) -> str:
    """llama.cpp's name for how a text is split before merging."""
    rule = json.dumps(content.get("pre_tokenizer"))
    if "individual_digits" in rule and "true" in rule.split("individual_digits")[1][:8]:
        return "smollm"
    if "{1,3}" in rule:
        return "llama-bpe"
    if "(?i:'s" in rule:
        return "qwen2"
    return "gpt-2"
