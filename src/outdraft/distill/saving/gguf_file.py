"""A small model as a GGUF file, as llama.cpp loads it."""

import json
from pathlib import Path
from typing import IO, Any

import gguf
from gguf.constants import GGMLQuantizationType
from torch import Tensor

from outdraft.distill.target import Target
from outdraft.distill.training.small_model import SmallModel
from outdraft.modelspec import ModelSpec
from outdraft.modelspec.gguf_layout import add_byte_level_bpe, add_sizes, gguf_name, interleave_rows
from outdraft.modelspec.packed import can_pack
from outdraft.whole_file import read_json, write_whole

TYPES = ("F16", "Q8_0")
_FILE_TYPES = {"F16": gguf.LlamaFileType.MOSTLY_F16, "Q8_0": gguf.LlamaFileType.MOSTLY_Q8_0}


def save_gguf(draft: SmallModel, target: Target, path: Path, type_name: str) -> bool:
    """Writes the file; False where GGUF has no form for the target's tokenizer."""
    source = target.files.path
    bpe = None if source.is_file() else _read_byte_level_bpe(source / "tokenizer.json")
    if bpe is None and not source.is_file():
        return False

    def write(file: IO[bytes]) -> None:
        writer = gguf.GGUFWriter(file.name, "llama")
        writer.add_name(path.stem)
        add_sizes(writer, draft.spec)
        writer.add_file_type(_FILE_TYPES[type_name])
        if bpe is None:
            _copy_tokenizer(writer, source)
        else:
            _add_tokenizer(writer, bpe, target)
        for name, tensor in draft.network.state_dict().items():
            _add_tensor(writer, name, tensor, draft.spec, type_name)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()

    write_whole(path, write)
    return True


def _add_tensor(writer: Any, name: str, tensor: Tensor, spec: ModelSpec, type_name: str) -> None:
    values = tensor.detach().float().cpu().numpy()
    rows = interleave_rows(name, values, spec.num_heads, spec.num_kv_heads)
    kind = None
    if rows.ndim > 1:  # norms stay F32 in every file
        is_packed = type_name == "Q8_0" and can_pack(rows.shape)
        kind = GGMLQuantizationType.Q8_0 if is_packed else GGMLQuantizationType.F16
        rows = gguf.quants.quantize(rows, kind)
    writer.add_tensor(gguf_name(name), rows, raw_dtype=kind)


def _copy_tokenizer(writer: Any, path: Path) -> None:
    """Every `tokenizer.` value of a GGUF file as it is."""
    for field in gguf.GGUFReader(path).fields.values():
        if field.name.startswith("tokenizer."):
            kind = field.types[0]
            items = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(field.name, field.contents(), kind, items)


def _read_byte_level_bpe(path: Path) -> dict[str, Any] | None:
    """A tokenizer.json; None if it is of another kind."""
    if not path.exists():
        return None
    content = read_json(path)
    is_bpe = content.get("model", {}).get("type") == "BPE"
    return content if is_bpe and "ByteLevel" in json.dumps(content.get("pre_tokenizer")) else None


def _add_tokenizer(writer: Any, content: dict[str, Any], target: Target) -> None:
    tokenizer = target.tokenizer
    add_byte_level_bpe(writer, content, target.spec.vocab_size)
    writer.add_eos_token_id(target.eos_ids[0])
    writer.add_add_bos_token(tokenizer.encode("a") != tokenizer.encode("a", add_special=False))
    if tokenizer.bos_id is not None:
        writer.add_bos_token_id(tokenizer.bos_id)
    if tokenizer.chat_template is not None:
        writer.add_chat_template(tokenizer.chat_template)
