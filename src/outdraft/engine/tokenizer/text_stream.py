"""Tokens in, text out as it becomes safe to show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

_UNFINISHED = "\ufffd"  # what the bytes of half a character decode to


class Decodes(Protocol):
    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str: ...


class TextStream:
    """Incremental detokenization of one sequence.

    Tokens cannot be decoded one by one: a character may span several, and sentencepiece drops
    the space of a first token. So a window is decoded twice, the tokens already shown and all of
    it, and the difference is the new text. The window moves on when the text ends with a whole
    character, so it stays a few tokens long.

    `after` is what precedes the first token (the prompt's last tokens): with it, a sentencepiece
    model's first new word keeps its leading space.
    """

    def __init__(
        self, tokenizer: Decodes, *, after: Sequence[int] = (), skip_special: bool = True
    ) -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._ids = list(after[-6:])
        self._num_shown = len(self._ids)

    def feed(self, ids: Sequence[int]) -> str:
        """Take the next tokens and return the new text, "" while a character is unfinished."""
        return "".join([self._feed_one(token) for token in ids])

    def finish(self) -> str:
        """What was still held back, as it is: the sequence has ended."""
        shown, whole = self._window()
        self._num_shown = len(self._ids)
        return whole[len(shown) :]

    def _feed_one(self, token: int) -> str:
        self._ids.append(token)
        shown, whole = self._window()
        if len(whole) <= len(shown) or whole.endswith(_UNFINISHED):
            return ""
        self._ids = self._ids[self._num_shown :]
        self._num_shown = len(self._ids)
        return whole[len(shown) :]

    def _window(self) -> tuple[str, str]:
        return self._decode(self._ids[: self._num_shown]), self._decode(self._ids)

    def _decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(ids, skip_special=self._skip_special)
