"""Which draft files an engine can load, as far as they are here to be looked at."""

from __future__ import annotations

from pathlib import Path

from outdraft.catalog.entries import SHIPPED_DRAFTS
from outdraft.errors import OptionError
from outdraft.modelspec.head import is_head, is_packed
from outdraft.modelspec.tensors import read_json

_READ_FOLDERS = ("vllm", "sglang")


def needs_folder(engine: str, draft: str | None) -> bool:
    """Whether a draft is a GGUF file, or a head in blocks that only we read, and the engine wants
    an ordinary folder: `outdraft export` makes one."""
    if engine not in _READ_FOLDERS or draft is None:
        return False
    path = _path(draft)
    return path.suffix == ".gguf" or is_packed(path)


def draft_file(draft: str) -> str:
    """The GGUF file of a draft, for llama.cpp."""
    path = _path(draft)
    if path.suffix == ".gguf":
        return draft if not path.is_file() else str(path)
    inside = sorted(path.glob("*.gguf")) if path.is_dir() else []
    if len(inside) == 1:
        return str(inside[0])
    what = "the folder of a head" if path.is_dir() and is_head(path) else "no .gguf file"
    raise OptionError(
        f"llama.cpp loads .gguf drafts, {draft} is {what}; convert it with llama.cpp's "
        "convert_hf_to_gguf.py and name the file"
    )


def check_head(engine: str, draft: str) -> None:
    """SGLang computes a head in one way, and knows the first of its layouts only; blocks are read
    by nobody else."""
    path = _path(draft)
    if engine in _READ_FOLDERS and is_packed(path):
        raise OptionError(
            f"the head {draft} is stored in blocks, which only outdraft reads; run "
            f"`outdraft export {draft} --out DIR` and name that folder"
        )
    if engine != "sglang" or not path.is_dir() or not is_head(path):
        return
    config = read_json(path / "config.json")
    is_nested = "transformer_layer_config" in config
    if config.get("norm_before_residual", is_nested):
        raise OptionError(
            f"SGLang does not run the head {draft}: it goes on with the hidden state as it is, "
            "this head was trained with the normed one (norm_before_residual); use vllm or outdraft"
        )
    if is_nested:
        raise OptionError(
            f"SGLang does not read the head {draft}: its config.json is in the layout of "
            "speculators; use vllm or outdraft"
        )


def _path(draft: str) -> Path:
    shipped = SHIPPED_DRAFTS.get(draft.lower())
    return Path(draft).expanduser() if shipped is None else shipped.path
