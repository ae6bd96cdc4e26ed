"""A model's own tokenizer and chat template, from a folder or a GGUF file.

`tokenizers` does the work. transformers, seconds to import, is asked only to convert what has no
tokenizer.json, and the result is kept in the cache folder.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tokenizers

from outdraft.engine.chat_template import render_chat
from outdraft.engine.text_stream import TextStream
from outdraft.errors import CorruptFileError, ModelError

__all__ = ["TextStream", "Tokenizer", "TokenizerParts", "first_difference", "load_tokenizer"]

_SPECIAL_NAMES = ("bos_token", "eos_token", "unk_token", "pad_token")


@dataclass(frozen=True)
class TokenizerParts:
    """What a tokenizer is made of, as plain data: this is what the cache keeps."""

    tokenizer_json: str
    adds_bos: bool | None  # None: whatever tokenizer.json's post-processor does
    eos_ids: tuple[int, ...]
    chat_template: str | None = None
    special_tokens: Mapping[str, str] = field(default_factory=dict)  # bos_token → its text


class Tokenizer:
    """Text ↔ token ids, exactly as the model was trained with."""

    def __init__(self, parts: TokenizerParts) -> None:
        self._backend = tokenizers.Tokenizer.from_str(parts.tokenizer_json)
        self._backend.no_padding()
        self._backend.no_truncation()
        self._special_tokens = dict(parts.special_tokens)
        self.chat_template = parts.chat_template
        self.vocab_size: int = self._backend.get_vocab_size(with_added_tokens=True)
        added = self._backend.get_added_tokens_decoder()
        self.special_ids = frozenset(i for i, token in added.items() if token.special)
        self.bos_id = self._id_of("bos_token")
        ends = (*parts.eos_ids, self._id_of("eos_token"))
        self.eos_ids: tuple[int, ...] = tuple(dict.fromkeys(i for i in ends if i is not None))
        self._adds_bos = self._starts_with_bos() if parts.adds_bos is None else parts.adds_bos

    def encode(self, text: str, *, add_special: bool = True) -> list[int]:
        """Token ids. `add_special` puts BOS first where the model's own tokenizer does."""
        ids: list[int] = self._backend.encode(text, add_special_tokens=False).ids
        if add_special and self._adds_bos and self.bos_id is not None:
            return [self.bos_id, *ids]
        return ids

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        return str(self._backend.decode(list(ids), skip_special_tokens=skip_special))

    def apply_chat(
        self, messages: Sequence[Mapping[str, str]], *, add_generation_prompt: bool = True
    ) -> list[int]:
        """The token ids of a conversation; the template writes every special token itself."""
        text = self.render_chat(messages, add_generation_prompt=add_generation_prompt)
        return self.encode(text, add_special=False)

    def render_chat(
        self, messages: Sequence[Mapping[str, str]], *, add_generation_prompt: bool = True
    ) -> str:
        if self.chat_template is None:
            raise ModelError("this model has no chat template; give it a plain prompt")
        return render_chat(
            self.chat_template,
            messages,
            add_generation_prompt=add_generation_prompt,
            special_tokens=self._special_tokens,
        )

    def token_text(self, token_id: int) -> str:
        """One token as text, specials spelled out, a sentencepiece word with its space."""
        piece = self._backend.id_to_token(token_id)
        if piece is None:
            return ""
        if token_id in self.special_ids:
            return str(piece)
        text = self.decode([token_id], skip_special=False)
        return " " + text if piece.startswith("▁") and not text.startswith(" ") else text

    def vocab(self) -> dict[str, int]:
        """Every token, as the tokenizer spells it, and its id."""
        return dict(self._backend.get_vocab(with_added_tokens=True))

    def _id_of(self, name: str) -> int | None:
        text = self._special_tokens.get(name)
        return None if text is None else self._backend.token_to_id(text)

    def _starts_with_bos(self) -> bool:
        ids = self._backend.encode("a", add_special_tokens=True).ids
        return self.bos_id is not None and ids[:1] == [self.bos_id]


def first_difference(target: Tokenizer, draft: Tokenizer) -> str | None:
    """None when both map the same tokens to the same ids; else what differs, in one line."""
    ours = {i: token for token, i in target.vocab().items()}
    theirs = {i: token for token, i in draft.vocab().items()}
    if ours == theirs:
        return None
    first = next(i for i in sorted(ours.keys() | theirs.keys()) if ours.get(i) != theirs.get(i))
    return (
        f"the target's tokenizer has {len(ours)} tokens, the draft's {len(theirs)}; "
        f"the first that differs is id {first}: {_shown(ours.get(first))} in the target, "
        f"{_shown(theirs.get(first))} in the draft"
    )


def _shown(token: str | None) -> str:
    return "nothing" if token is None else repr(token)


def load_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer of a Hugging Face folder or a `.gguf` file."""
    if path.is_dir():
        return _build(_folder_parts(path), path)
    if path.suffix == ".gguf" and path.exists():
        from outdraft.engine.gguf_tokenizer import gguf_parts

        return _build(gguf_parts(path), path)
    raise ModelError(f"{path} is neither a model folder nor a .gguf file: no tokenizer there")


def _build(parts: TokenizerParts, source: Path) -> Tokenizer:
    try:
        return Tokenizer(parts)
    except Exception as error:  # tokenizers raises bare Exception for whatever it cannot parse
        raise CorruptFileError(f"{source}: the tokenizer cannot be read ({error})") from error


def _folder_parts(folder: Path) -> TokenizerParts:
    config = _read_json(folder / "tokenizer_config.json")
    names = {**_read_json(folder / "special_tokens_map.json"), **config}
    special = {name: _text_of(names.get(name)) for name in _SPECIAL_NAMES}
    file = folder / "tokenizer.json"
    adds_bos = config.get("add_bos_token")
    if file.exists():
        text = file.read_text(encoding="utf-8")
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
        return file.read_text(encoding="utf-8")
    found = config.get("chat_template")
    if isinstance(found, list):  # several templates by name
        found = {entry["name"]: entry["template"] for entry in found}.get("default")
    return found if isinstance(found, str) else None


def _text_of(token: object) -> str | None:
    """A special token is written as its text or as an object holding it."""
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else None


def _read_json(file: Path) -> dict[str, Any]:
    if not file.exists():
        return {}
    try:
        contents = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CorruptFileError(f"{file} is not readable JSON ({error})") from error
    return contents if isinstance(contents, dict) else {}
