"""A draft's folder: what transformers, vLLM and our engine load."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from outdraft.distill.files import write_json, write_tensors
from outdraft.distill.head_draft import Head
from outdraft.distill.small_model import SmallModel
from outdraft.distill.target import Target
from outdraft.engine.tokenizer import Tokenizer
from outdraft.engine.tokenizer.gguf import gguf_parts
from outdraft.errors import ModelError, OutdraftError
from outdraft.modelspec import ModelSpec
from outdraft.modelspec.head import COLUMNS, LM_HEAD, head_config
from outdraft.modelspec.packed import can_pack, pack
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
_CLASSES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "smollm3": "SmolLM3ForCausalLM",
}
# An lm_head is by far the largest matrix. In 4 bits its difference from the target's embeddings
# costs no acceptance, while the lm_head itself would lose a tenth of it, in 5 bits a twentieth.
_DIFFERENCE, _OTHERS = "q4_0", "q8_0"


def save_draft(
    draft: SmallModel | Head, target: Target, folder: Path, *, k: int, storage: str = "bfloat16"
) -> None:
    """Weights last: a folder with weights is a whole one. `storage`: of a head's matrices."""
    if isinstance(draft, Head):
        config = head_config(draft.spec, target_name=target.files.name, k=k)
        write_json(folder / "config.json", config)
        tensors = stored_head(head_tensors(draft), storage, target.network.embedding)
        write_tensors(folder / "model.safetensors", tensors, {"format": "pt"})
        return
    save_model(
        folder,
        draft.spec,
        model_tensors(draft),
        tokenizer=target.tokenizer,
        tokenizer_files=target.files.path,
        eos_ids=target.eos_ids,
    )


def save_model(
    folder: Path,
    spec: ModelSpec,
    tensors: Mapping[str, Tensor],
    *,
    tokenizer: Tokenizer,
    tokenizer_files: Path,
    eos_ids: tuple[int, ...],
) -> None:
    """A whole Hugging Face folder. `tokenizer_files`: the folder or GGUF file that it is from."""
    write_json(folder / "config.json", model_config(spec))
    generation = {"bos_token_id": spec.bos_id, "eos_token_id": list(eos_ids)}
    write_json(folder / "generation_config.json", generation)
    _write_tokenizer(tokenizer, tokenizer_files, folder)
    write_tensors(folder / "model.safetensors", tensors, {"format": "pt"})


def model_tensors(draft: SmallModel) -> dict[str, Tensor]:
    return {name: t.to(torch.bfloat16) for name, t in draft.network.state_dict().items()}


def head_tensors(draft: Head) -> dict[str, Tensor]:
    """As `outdraft.modelspec.head` lays them out."""
    tensors = {name: tensor.detach() for name, tensor in draft.state_dict().items()}
    del tensors["scale"]
    tensors["fc.weight"] = draft.saved_fc.detach()
    size, vocabulary = draft.spec.draft_vocab_size, draft.d2t.cpu()
    is_known = torch.zeros(draft.spec.vocab_size, dtype=torch.bool)
    is_known[vocabulary] = True
    return {**tensors, "d2t": vocabulary - torch.arange(size), "t2d": is_known}


def stored_head(
    tensors: Mapping[str, Tensor], storage: str, embedding: Tensor
) -> dict[str, Tensor]:
    """A head's tensors as a file of this storage holds them; `embedding` (V, H): the target's."""
    stored: dict[str, Tensor] = {}
    tensors = dict(tensors)
    lm_head = tensors[LM_HEAD]
    is_difference = storage == "blocks" and lm_head.shape[1] == embedding.shape[1]
    if is_difference:
        shifts = tensors.get("d2t", torch.zeros(len(lm_head), dtype=torch.long))
        rows = embedding[(torch.arange(len(shifts)) + shifts.cpu()).to(embedding.device)].float()
        lm_head = lm_head.to(rows)
        columns = (lm_head * rows).sum(0) / rows.square().sum(0).clamp(min=1e-12)
        tensors[LM_HEAD], stored[COLUMNS] = lm_head - rows * columns, columns
    for name, tensor in tensors.items():
        # fc reads states of very different sizes: too wide a range for a few bits.
        is_small = tensor.ndim == 2 and name != "fc.weight"
        if not tensor.is_floating_point():
            stored[name] = tensor
        elif is_small and storage == "float8":
            stored[name] = tensor.to(torch.float8_e4m3fn)
        elif is_small and storage == "blocks" and can_pack(tuple(tensor.shape)):
            kind = _DIFFERENCE if is_difference and name == LM_HEAD else _OTHERS
            values = pack(tensor.float().cpu().numpy(), kind)
            stored[f"{name}.{kind}"] = torch.from_numpy(values)
        else:
            stored[name] = tensor.to(torch.bfloat16)
    return stored


def model_config(spec: ModelSpec) -> dict[str, Any]:
    """As transformers, vLLM and SGLang read it. ModelError for what it has no words for."""
    eos = list(spec.eos_ids)
    family = "mistral" if spec.family == "llama" and any(spec.windows) else spec.family
    _check_family(spec, family)
    config: dict[str, Any] = {
        "architectures": [_CLASSES[family]],
        "model_type": family,
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
        "rope_parameters": {**_rope(spec), "rope_theta": spec.rope_theta},
        "attention_bias": spec.o_bias,
        "mlp_bias": spec.mlp_bias,
        "tie_word_embeddings": spec.tie_embeddings,
        "bos_token_id": spec.bos_id,
        "eos_token_id": eos[0] if len(eos) == 1 else eos,
        "pad_token_id": None,  # SmolLM3's default may lie outside the vocabulary
        "torch_dtype": "bfloat16",
    }
    if family == "mistral":
        config["sliding_window"] = spec.windows[0]
    if family == "smollm3":  # despite its name, 1 means that positions are rotated in
        config["no_rope_layers"] = [int(each) for each in spec.rope_layers]
    return config


def _rope(spec: ModelSpec) -> dict[str, Any]:
    if spec.rope_scaling is None:
        return {"rope_type": "default"}
    if spec.rope_scaling.kind == "linear":
        return {"rope_type": "linear", "factor": spec.rope_scaling.factor}
    raise _no_words(f"rope scaling by {spec.rope_scaling.kind}")


def _check_family(spec: ModelSpec, family: str) -> None:
    """What a GGUF file can say of a family, and config.json cannot."""
    if family != "mistral" and any(spec.windows):
        raise _no_words(f"a {family} with a window of {spec.windows[0]} tokens in every layer")
    usual = family == "qwen2" or spec.o_bias
    if spec.qkv_bias != usual or (family == "mistral" and usual):
        raise _no_words(f"the biases of this {family}")


def _no_words(what: str) -> ModelError:
    return ModelError(
        f"config.json has no words for {what}; take the unquantized model's own folder"
    )


def _write_tokenizer(tokenizer: Tokenizer, source: Path, folder: Path) -> None:
    """Copied from a folder, or taken out of a GGUF file."""
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
    config = {**tokenizer.config(), "clean_up_tokenization_spaces": False}
    if parts.adds_bos is not None:
        config["add_bos_token"] = parts.adds_bos
    write_text(folder / "tokenizer_config.json", json.dumps(config, indent=2) + "\n")
