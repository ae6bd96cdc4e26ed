"""Vocabularies, read from a model's files without building a tokenizer, and compared.

A draft model can propose for a target when both have the same tokens under the same ids. A
tokenizer.json and a GGUF header both hold that list, spelled in the same way.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from outdraft.errors import CorruptFileError
from outdraft.modelspec.gguf_header import read_gguf_header
from outdraft.whole_file import read_json

_CONTROL, _UNUSED = 3, 5  # GGUF's kinds of tokens
_NAMED = ("bos_token", "eos_token")


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


def vocabulary_difference(target: Mapping[int, str], draft: Mapping[int, str]) -> str | None:
    """None when both have the same tokens under the same ids; else what differs, in one line."""
    if target == draft:
        return None
    ids = sorted(target.keys() | draft.keys())
    first = next(each for each in ids if target.get(each) != draft.get(each))
    ours, theirs = (
        "nothing" if first not in tokens else repr(tokens[first]) for tokens in (target, draft)
    )
    return (
        f"the target's tokenizer has {len(target)} tokens, the draft's {len(draft)}; the first "
        f"that differs is id {first}: {ours} in the target, {theirs} in the draft"
    )


def is_padding(index: int, text: str, kind: int) -> bool:
    """Whether a GGUF token is a row that the converter made up to fill a padded embedding."""
    return kind == _UNUSED and text == f"[PAD{index}]"


def token_text(value: object) -> str | None:
    """A special token's text: tokenizer_config.json has it plain, or inside an object."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None


def read_chat_template(folder: Path, config: Mapping[str, Any]) -> str | None:
    """`config` is tokenizer_config.json, which holds one template or several by name."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        try:
            return file.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise CorruptFileError(f"{file} is not UTF-8 text ({error})") from error
    template = config.get("chat_template")
    if isinstance(template, list):
        named = [each for each in template if isinstance(each, dict)]
        template = {each.get("name"): each.get("template") for each in named}.get("default")
    return template if isinstance(template, str) else None


def _from_folder(folder: Path) -> Vocabulary:
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
        {name: text for name in _NAMED if (text := token_text(config.get(name))) is not None},
        read_chat_template(folder, config),
    )


def _from_gguf(path: Path) -> Vocabulary | None:
    names = ("tokenizer.ggml.tokens", "tokenizer.ggml.token_type")
    header = read_gguf_header(path, arrays=names)
    listed = cast("list[str] | None", header.values.get(names[0]))
    if not listed:
        return None
    kinds = cast("list[int]", header.values.get(names[1], [1] * len(listed)))
    tokens = {
        index: text
        for index, (text, kind) in enumerate(zip(listed, kinds, strict=False))
        if not is_padding(index, text, kind)
    }
    template = header.values.get("tokenizer.chat_template")
    return Vocabulary(
        tokens,
        frozenset(text for text, kind in zip(listed, kinds, strict=False) if kind == _CONTROL),
        {
            name: listed[index]
            for name in _NAMED
            if isinstance(index := header.values.get(f"tokenizer.ggml.{name}_id"), int)
            and 0 <= index < len(listed)
        },
        template if isinstance(template, str) else None,
    )
