"""How llama.cpp's GGUF files name tensors and sizes, order the rows of q and k, list tokens.

llama.cpp's rotary embedding for the architectures in PERMUTED rotates neighbouring elements, so
their converter reorders the rows of q and k within each head from two halves (0 … d/2, d/2 … d) to
interleaved pairs.
"""

import json
import re
from typing import Any

from gguf.constants import TokenType

from outdraft.modelspec.spec import ModelSpec

# Those whose converter derives from the Llama one. Qwen's do not: their rows stay as they are.
PERMUTED = frozenset({"llama", "smollm3"})

_TOP_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
    "rope_freqs.weight": "rope_freqs.weight",  # llama3 scaling: a divisor per rotary frequency
}
_BLOCK_NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
_TO_GGUF = {hf: name for names in (_TOP_NAMES, _BLOCK_NAMES) for name, hf in names.items()}


def hf_name(gguf_name: str) -> str | None:
    """The Hugging Face name of a GGUF tensor; None for one no supported family uses."""
    if gguf_name in _TOP_NAMES:
        return _TOP_NAMES[gguf_name]
    block = re.fullmatch(r"blk\.(\d+)\.(\w+)\.(weight|bias)", gguf_name)
    if block is None or block[2] not in _BLOCK_NAMES:
        return None
    return f"model.layers.{block[1]}.{_BLOCK_NAMES[block[2]]}.{block[3]}"


def gguf_name(hf_name: str) -> str:
    """The GGUF name of a Hugging Face tensor."""
    if hf_name in _TO_GGUF:
        return _TO_GGUF[hf_name]
    _, _, layer, *part, suffix = hf_name.split(".")  # model.layers.{layer}.{part}.{suffix}
    return f"blk.{layer}.{_TO_GGUF['.'.join(part)]}.{suffix}"


def interleave_rows(hf_name: str, values: Any, num_heads: int, num_kv_heads: int) -> Any:
    """The rows of q and k from two halves to pairs, of an array; any other tensor as it is."""
    heads = {"q_proj": num_heads, "k_proj": num_kv_heads}.get(hf_name.split(".")[-2])
    if heads is None:
        return values
    halves = values.reshape(heads, 2, -1, *values.shape[1:])
    return halves.swapaxes(1, 2).reshape(values.shape)


def add_sizes(writer: Any, spec: ModelSpec) -> None:
    """writer: a GGUFWriter of the gguf package."""
    writer.add_context_length(spec.max_context)
    writer.add_embedding_length(spec.hidden_size)
    writer.add_block_count(spec.num_layers)
    writer.add_feed_forward_length(spec.intermediate_size)
    writer.add_head_count(spec.num_heads)
    writer.add_head_count_kv(spec.num_kv_heads)
    writer.add_key_length(spec.head_dim)
    writer.add_value_length(spec.head_dim)
    writer.add_rope_dimension_count(spec.head_dim)
    writer.add_rope_freq_base(spec.rope_theta)
    writer.add_layer_norm_rms_eps(spec.rms_eps)
    writer.add_vocab_size(spec.vocab_size)


def add_byte_level_bpe(writer: Any, content: dict[str, Any], vocab_size: int) -> None:
    """The tokens and merges of a tokenizer.json; rows beyond its tokens are padding."""
    model = content["model"]
    texts = {index: text for text, index in model["vocab"].items()}
    types = dict.fromkeys(texts, TokenType.NORMAL)
    for added in content.get("added_tokens", []):
        texts[added["id"]] = added["content"]
        types[added["id"]] = TokenType.CONTROL if added["special"] else TokenType.USER_DEFINED
    ids = range(vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(_splitting_rule(content))
    writer.add_token_list([texts.get(id, f"[PAD{id}]") for id in ids])
    writer.add_token_types([types.get(id, TokenType.UNUSED) for id in ids])
    merges = model["merges"]
    writer.add_token_merges([one if isinstance(one, str) else " ".join(one) for one in merges])


def _splitting_rule(content: dict[str, Any]) -> str:
    """llama.cpp's name for the way a text is split into words before merging."""
    rule = json.dumps(content.get("pre_tokenizer"))
    if "individual_digits" in rule and "true" in rule.split("individual_digits")[1][:8]:
        return "smollm"
    marks = {"{1,3}": "llama-bpe", "(?i:'s": "qwen2"}
    return next((name for mark, name in marks.items() if mark in rule), "gpt-2")
