"""The tokenizer of a Hugging Face folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from outdraft.engine.tokenizer.parts import TokenizerParts
from outdraft.errors import CorruptFileError, ModelError

_SPECIAL_NAMES = ("bos_token", "eos_token", "unk_token", "pad_token")


def folder_parts(folder: Path) -> TokenizerParts:
    config = _read_json(folder / "tokenizer_config.json")
    names = {**_read_json(folder / "special_tokens_map.json"), **config}
    special = {name: _text_of(names.get(name)) for name in _SPECIAL_NAMES}
    file = folder / "tokenizer.json"
    adds_bos = config.get("add_bos_token")
    if file.exists():
        text = _read_text(file)
    else:
        text, special = _converted(folder)
        adds_bos = None  # the conversion put it into the post-processor
    return TokenizerParts(
        tokenizer_json=text,
        adds_bos=adds_bos if isinstance(adds_bos, bool) else None,
        eos_ids=_eos_ids(folder),
        chat_template=_chat_template(folder, config),
        special_tokens={name: text for name, text in special.items() if text is not None},
    )


def _converted(folder: Path) -> tuple[str, dict[str, str | None]]:
    """tokenizer.json made from sentencepiece or vocab files, through transformers."""
    from transformers import AutoTokenizer

    try:
        loaded = AutoTokenizer.from_pretrained(folder, use_fast=True)
        text = loaded.backend_tokenizer.to_str()
    except Exception as error:  # any of a dozen kinds, by what the folder lacks
        raise ModelError(
            f"{folder} has no tokenizer.json and transformers cannot make one "
            f"({str(error).splitlines()[0] if str(error) else type(error).__name__})"
        ) from error
    return text, {name: getattr(loaded, name) for name in _SPECIAL_NAMES}


def _eos_ids(folder: Path) -> tuple[int, ...]:
    """The ids that end a text: generation_config.json's, else config.json's."""
    for name in ("generation_config.json", "config.json"):
        value = _read_json(folder / name).get("eos_token_id")
        if isinstance(value, int):
            return (value,)
        if isinstance(value, list):
            return tuple(value)
    return ()


def _chat_template(folder: Path, config: Mapping[str, Any]) -> str | None:
    file = folder / "chat_template.jinja"
    if file.exists():
        return _read_text(file)
    found = config.get("chat_template")
    if isinstance(found, list):  # several templates by name
        named = [entry for entry in found if isinstance(entry, dict)]
        found = {entry.get("name"): entry.get("template") for entry in named}.get("default")
    return found if isinstance(found, str) else None


def _text_of(token: object) -> str | None:
    """A special token is written as its text or as an object holding it."""
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else None


def _read_text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise CorruptFileError(f"{file} is not UTF-8 text ({error})") from error


def _read_json(file: Path) -> dict[str, Any]:
    if not file.exists():
        return {}
    try:
        contents = json.loads(_read_text(file))
    except ValueError as error:
        raise CorruptFileError(f"{file} is not readable JSON ({error})") from error
    return contents if isinstance(contents, dict) else {}
