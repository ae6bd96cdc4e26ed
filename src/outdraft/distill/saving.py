"""A draft's folder: what transformers, vLLM and our engine load."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from outdraft.distill.files import write_json, write_tensors
from outdraft.distill.head_draft import Head
from outdraft.distill.small_model import SmallModel
from outdraft.distill.target import Target
from outdraft.engine.tokenizer.gguf import gguf_parts
from outdraft.errors import OutdraftError
from outdraft.modelspec import ModelSpec
from outdraft.modelspec.head import head_config
from outdraft.whole_file import write_text

_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
)


STORAGES = {"bfloat16": torch.bfloat16, "float8": torch.float8_e4m3fn}


def save_draft(
    draft: SmallModel | Head, target: Target, folder: Path, *, k: int, storage: str = "bfloat16"
) -> None:
    """Weights last: a folder with weights is a whole one. `storage`: of a head's matrices."""
    if isinstance(draft, Head):
        config = head_config(draft.spec, target_name=target.files.name, k=k)
        write_json(folder / "config.json", config)
        write_tensors(folder / "model.safetensors", head_tensors(draft, storage), {"format": "pt"})
        return
    write_json(folder / "config.json", model_config(draft.spec))
    write_json(folder / "generation_config.json", _generation_config(draft.spec, target))
    _write_tokenizer(target, folder)
    write_tensors(folder / "model.safetensors", model_tensors(draft), {"format": "pt"})


def model_tensors(draft: SmallModel) -> dict[str, Tensor]:
    return {name: t.to(torch.bfloat16) for name, t in draft.network.state_dict().items()}


def head_tensors(draft: Head, storage: str = "bfloat16") -> dict[str, Tensor]:
    """As `outdraft.modelspec.head` lays them out.

    float8 halves the file; a logit is a sum over hundreds of weights, so their 3 bits of
    fraction hardly show in it, and whoever loads the file makes them wider anyway.
    """
    kind = STORAGES[storage]
    # fc reads states of very different sizes: too wide a range for float8.
    tensors = {
        name: tensor.to(torch.bfloat16 if tensor.ndim == 1 else kind)
        for name, tensor in draft.state_dict().items()
        if name not in ("d2t", "scale", "fc.weight")
    }
    tensors["fc.weight"] = draft.saved_fc.detach().to(torch.bfloat16)
    size, vocabulary = draft.spec.draft_vocab_size, draft.d2t.cpu()
    is_known = torch.zeros(draft.spec.vocab_size, dtype=torch.bool)
    is_known[vocabulary] = True
    return {**tensors, "d2t": vocabulary - torch.arange(size), "t2d": is_known}


def model_config(spec: ModelSpec) -> dict[str, Any]:
    eos = list(spec.eos_ids)
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": spec.hidden_size,
        "intermediate_size": spec.intermediate_size,
        "num_hidden_layers": spec.num_layers,
        "num_attention_heads": spec.num_heads,
        "num_key_value_heads": spec.num_kv_heads,
        "head_dim": spec.head_dim,
        "vocab_size": spec.vocab_size,
        "max_position_embeddings": spec.max_context,
        "hidden_act": "silu",
        "rms_norm_eps": spec.rms_eps,
        "rope_theta": spec.rope_theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": spec.rope_theta},
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "bos_token_id": spec.bos_id,
        "eos_token_id": eos[0] if len(eos) == 1 else eos,
        "torch_dtype": "bfloat16",
    }


def _generation_config(spec: ModelSpec, target: Target) -> dict[str, Any]:
    return {"bos_token_id": spec.bos_id, "eos_token_id": list(target.eos_ids)}


def _write_tokenizer(target: Target, folder: Path) -> None:
    """The target's own: copied from its folder, or taken out of its GGUF file."""
    source = target.files.path
    if source.is_dir():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for name in _TOKENIZER_FILES:
                if (source / name).exists():
                    shutil.copyfile(source / name, folder / name)
        except OSError as error:
            raise OutdraftError(f"cannot write {folder}: {error.strerror}") from error
        return
    parts = gguf_parts(source)
    write_text(folder / "tokenizer.json", parts.tokenizer_json)
    config = {**target.tokenizer.config(), "clean_up_tokenization_spaces": False}
    if parts.adds_bos is not None:
        config["add_bos_token"] = parts.adds_bos
    write_text(folder / "tokenizer_config.json", json.dumps(config, indent=2) + "\n")
