"""A draft's folder, as transformers, vLLM and our engine load it."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from outdraft.distill.target import Target, end_of_text_ids
from outdraft.distill.training.drafts import AnyDraft, draft_vocabulary
from outdraft.distill.training.head_model import HeadModel
from outdraft.engine.tokenizer import Tokenizer
from outdraft.engine.tokenizer.gguf import gguf_parts
from outdraft.errors import ModelError, OutdraftError
from outdraft.modelspec import ModelSpec
from outdraft.modelspec.config import layer_config
from outdraft.modelspec.head import COLUMNS, LM_HEAD, head_config
from outdraft.modelspec.packed import can_pack, pack
from outdraft.modelspec.rope import rope_config
from outdraft.modelspec.tensors import SINGLE
from outdraft.whole_file import write_json, write_text, write_whole

_TOKENIZER_FILES = (
    *("tokenizer*", "chat_template*", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.json", "merges.txt"),
)
_CLASSES = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3",
            "smollm3": "SmolLM3"}  # fmt: skip
# The lm_head is by far the largest matrix. Its difference from the target's embedding can be stored
# in 4 bits without losing acceptance; the lm_head itself would lose a tenth, in 5 bits a twentieth.
_DIFFERENCE, _OTHERS = "q4_0", "q8_0"


def save_draft(
    draft: AnyDraft, target: Target, folder: Path, *, k: int, storage: str = "bfloat16"
) -> None:
    """Writes the weights last: a folder that has them is complete."""
    if isinstance(draft, HeadModel):
        config = head_config(draft.spec, target_name=target.files.name, k=k)
        write_json(folder / "config.json", config, indent=2)
        stored = store_head(_head_tensors(draft), storage, target.network.embedding)
        write_tensors(folder / SINGLE, stored)
        return
    state = draft.network.state_dict()
    tensors = {name: tensor.to(torch.bfloat16) for name, tensor in state.items()}
    save_model(folder, draft.spec, tensors, target.tokenizer, target.files.path)


def save_model(
    folder: Path, spec: ModelSpec, tensors: Mapping[str, Tensor], tokenizer: Tokenizer, source: Path
) -> None:
    """A complete Hugging Face folder. `source`: the tokenizer's folder or GGUF file."""
    write_json(folder / "config.json", model_config(spec), indent=2)
    eos_ids = end_of_text_ids(tokenizer, spec)
    generation = {"bos_token_id": spec.bos_id, "eos_token_id": list(eos_ids)}
    write_json(folder / "generation_config.json", generation, indent=2)
    _write_tokenizer(tokenizer, source, folder)
    write_tensors(folder / SINGLE, tensors)


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    on_host = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_whole(path, lambda file: file.write(save(on_host, {"format": "pt"})))


def _head_tensors(draft: HeadModel) -> dict[str, Tensor]:
    """In the layout of docs/heads.md."""
    tensors = {name: tensor.detach() for name, tensor in draft.state_dict().items()}
    del tensors["scale"]
    tensors["fc.weight"] = draft.saved_fc.detach()
    vocabulary = draft.d2t.cpu()
    tensors["d2t"] = vocabulary - torch.arange(len(vocabulary))
    is_drawn = torch.isin(torch.arange(draft.spec.vocab_size), vocabulary)
    return {**tensors, "t2d": is_drawn}


def store_head(tensors: dict[str, Tensor], storage: str, embedding: Tensor) -> dict[str, Tensor]:
    """A head's tensors as they are stored; `embedding` (V, H) is the target's."""
    stored: dict[str, Tensor] = {}
    lm_head = tensors[LM_HEAD]
    is_difference = storage == "blocks" and lm_head.shape[1] == embedding.shape[1]
    if is_difference:
        rows = embedding[draft_vocabulary(tensors).to(embedding.device)].float()
        lm_head = lm_head.to(rows)
        columns = (lm_head * rows).sum(0) / rows.square().sum(0).clamp(min=1e-12)
        tensors = {**tensors, LM_HEAD: lm_head - rows * columns}
        stored[COLUMNS] = columns
    for name, tensor in tensors.items():
        # fc reads states of very different sizes: too wide a range for a few bits.
        may_shrink = tensor.ndim == 2 and name != "fc.weight"
        if not tensor.is_floating_point():
            stored[name] = tensor
        elif may_shrink and storage == "float8":
            stored[name] = tensor.to(torch.float8_e4m3fn)
        elif may_shrink and storage == "blocks" and can_pack(tuple(tensor.shape)):
            kind = _DIFFERENCE if is_difference and name == LM_HEAD else _OTHERS
            values = pack(tensor.float().cpu().numpy(), kind)
            stored[f"{name}.{kind}"] = torch.from_numpy(values)
        else:
            stored[name] = tensor.to(torch.bfloat16)
    return stored


def model_config(spec: ModelSpec) -> dict[str, Any]:
    """As transformers, vLLM and SGLang read it. ModelError for what it cannot express."""
    eos = list(spec.eos_ids)
    family = "mistral" if spec.family == "llama" and any(spec.windows) else spec.family
    usual_bias = family == "qwen2" or spec.o_bias
    problem = ""
    if family != "mistral" and any(spec.windows):
        problem = f"a {family} with a window of {spec.windows[0]} tokens in every layer"
    elif spec.qkv_bias != usual_bias or (family == "mistral" and usual_bias):
        problem = f"the biases of this {family}"
    if problem:
        advice = "use the unquantized model's own folder"
        raise ModelError(f"config.json cannot express {problem}; {advice}")
    config: dict[str, Any] = {
        "architectures": [f"{_CLASSES[family]}ForCausalLM"],
        "model_type": family,
        **layer_config(spec),
        "rope_parameters": {**rope_config(spec.rope_scaling), "rope_theta": spec.rope_theta},
        "attention_bias": spec.o_bias,
        "tie_word_embeddings": spec.tie_embeddings,
        "bos_token_id": spec.bos_id,
        "eos_token_id": eos[0] if len(eos) == 1 else eos,
        "pad_token_id": None,  # SmolLM3's default may lie outside the vocabulary
        "torch_dtype": "bfloat16",
    }
    if family == "mistral":
        config["sliding_window"] = spec.windows[0]
    if family == "smollm3":  # despite its name, 1 means that positions are rotated
        config["no_rope_layers"] = [int(each) for each in spec.rope_layers]
    return config


def _write_tokenizer(tokenizer: Tokenizer, source: Path, folder: Path) -> None:
    """Copied from a folder, or taken out of a GGUF file."""
    if source.is_dir():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for pattern in _TOKENIZER_FILES:
                for file in filter(Path.is_file, source.glob(pattern)):
                    shutil.copyfile(file, folder / file.name)
        except OSError as error:
            raise OutdraftError(f"cannot write {folder}: {error.strerror}") from error
        return
    parts = gguf_parts(source)
    write_text(folder / "tokenizer.json", parts.tokenizer_json)
    config = {**tokenizer.config(), "clean_up_tokenization_spaces": False}
    if parts.adds_bos is not None:
        config["add_bos_token"] = parts.adds_bos
    write_json(folder / "tokenizer_config.json", config, indent=2)
