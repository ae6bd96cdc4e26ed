"""The tokens of a model, read from its files as they stand: no tokenizer is built.

Whether a draft can propose for a target is a question about two lists, token → id. A tokenizer.json
and a GGUF header both hold that list, spelled in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from outdraft.errors import CorruptFileError

_CONTROL, _UNUSED = 3, 5  # GGUF's kinds of tokens
_NAMED = ("bos_token", "eos_token")
_GGUF_IDS = {
    "bos_token": "tokenizer.ggml.bos_token_id",
    "eos_token": "tokenizer.ggml.eos_token_id",
}
_PADDING = re.compile(r"\[PAD\d+\]")  # rows a converter made up to fill an embedding


@dataclass(frozen=True, slots=True)
class Vocabulary:
    tokens: Mapping[int, str]  # by id
    special: frozenset[str]
    named: Mapping[str, str] = field(default_factory=dict)  # bos_token, eos_token → text
    chat_template: str | None = None


def read_vocabulary(path: Path) -> Vocabulary | None:
    """Of a folder or a .gguf file; None when there is none that can be read without a library."""
    if path.is_dir():
        return _from_folder(path) if (path / "tokenizer.json").is_file() else None
    return _from_gguf(path)


def first_difference(target: Vocabulary, draft: Vocabulary) -> str | None:
    """None when both give the same ids to the same tokens; else what differs, in one line."""
    ours, theirs = target.tokens, draft.tokens
    if ours == theirs:
        return None
    first = next(i for i in sorted(ours.keys() | theirs.keys()) if ours.get(i) != theirs.get(i))
    return (
        f"the target's tokenizer has {len(ours)} tokens, the draft's {len(theirs)}; the first "
        f"that differs is id {first}: {_shown(ours.get(first))} in the target, "
        f"{_shown(theirs.get(first))} in the draft"
    )


def _shown(token: str | None) -> str:
    return "nothing" if token is None else repr(token)


def _from_folder(folder: Path) -> Vocabulary:
    from outdraft.modelspec.tensors import read_json

    path = folder / "tokenizer.json"
    contents = read_json(path)
    try:
        vocab = contents["model"]["vocab"]
        # Unigram models list [text, score] in the order of the ids.
        tokens = (
            {index: str(each[0]) for index, each in enumerate(vocab)}
            if isinstance(vocab, list)
            else {int(index): str(text) for text, index in vocab.items()}
        )
        added = contents.get("added_tokens") or []
        tokens.update({int(each["id"]): str(each["content"]) for each in added})
        special = frozenset(str(each["content"]) for each in added if each.get("special"))
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise CorruptFileError(f"{path} is no tokenizer ({error!r}); fetch it again") from error
    settings = folder / "tokenizer_config.json"
    config = read_json(settings) if settings.is_file() else {}
    return Vocabulary(
        tokens,
        special,
        {name: text for name in _NAMED if (text := _text(config.get(name))) is not None},
        _template(folder, config),
    )


def _text(value: Any) -> str | None:
    if isinstance(value, dict):  # written out as an added token
        value = value.get("content")
    return value if isinstance(value, str) else None


def _template(folder: Path, config: Mapping[str, Any]) -> str | None:
    alone = folder / "chat_template.jinja"
    if alone.is_file():
        return alone.read_text(encoding="utf-8", errors="replace")
    template = config.get("chat_template")
    if isinstance(template, list):  # several, by name
        named = {each.get("name"): each.get("template") for each in template}
        template = named.get("default")
    return template if isinstance(template, str) else None


def _from_gguf(path: Path) -> Vocabulary | None:
    from outdraft.modelspec.gguf_header import read_gguf_header

    names = ("tokenizer.ggml.tokens", "tokenizer.ggml.token_type")
    header = read_gguf_header(path, arrays=names)
    listed = cast("list[str] | None", header.values.get(names[0]))
    if not listed:
        return None
    kinds = cast("list[int]", header.values.get(names[1], [1] * len(listed)))
    tokens = {
        index: text
        for index, (text, kind) in enumerate(zip(listed, kinds, strict=False))
        if kind != _UNUSED or not _PADDING.fullmatch(text)
    }
    template = header.values.get("tokenizer.chat_template")
    return Vocabulary(
        tokens,
        frozenset(text for text, kind in zip(listed, kinds, strict=False) if kind == _CONTROL),
        {
            name: listed[index]
            for name, key in _GGUF_IDS.items()
            if isinstance(index := header.values.get(key), int) and 0 <= index < len(listed)
        },
        template if isinstance(template, str) else None,
    )
