"""The tokenizer of a Hugging Face folder."""

from pathlib import Path
from typing import Any

from outdraft.engine.tokenizer.parts import TokenizerParts, convert_with_transformers
from outdraft.errors import CorruptFileError
from outdraft.modelspec.vocabulary import read_chat_template, token_text
from outdraft.whole_file import read_json

_SPECIAL_NAMES = ("bos_token", "eos_token", "unk_token", "pad_token")


def folder_parts(folder: Path) -> TokenizerParts:
    config = _read_json(folder / "tokenizer_config.json")
    names = {**_read_json(folder / "special_tokens_map.json"), **config}
    special = {name: token_text(names.get(name)) for name in _SPECIAL_NAMES}
    file = folder / "tokenizer.json"
    adds_bos = config.get("add_bos_token")
    if file.exists():
        text = _read_text(file)
    else:
        text, converted = convert_with_transformers(
            folder, f"{folder} has no tokenizer.json and transformers cannot make one"
        )
        special = {name: getattr(converted, name) for name in _SPECIAL_NAMES}
        adds_bos = None  # the conversion put it into the post-processor
    return TokenizerParts(
        tokenizer_json=text,
        adds_bos=adds_bos if isinstance(adds_bos, bool) else None,
        eos_ids=_eos_ids(folder),
        chat_template=read_chat_template(folder, config),
        special_tokens={name: text for name, text in special.items() if text is not None},
    )


def _eos_ids(folder: Path) -> tuple[int, ...]:
    """The ids that end a text: generation_config.json's, else config.json's."""
    for name in ("generation_config.json", "config.json"):
        value = _read_json(folder / name).get("eos_token_id")
        if isinstance(value, int):
            return (value,)
        if isinstance(value, list):
            return tuple(value)
    return ()


def _read_text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise CorruptFileError(f"{file} is not UTF-8 text ({error})") from error


def _read_json(file: Path) -> dict[str, Any]:
    return read_json(file) if file.exists() else {}
