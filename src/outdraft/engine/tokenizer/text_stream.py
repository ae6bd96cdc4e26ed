"""Turns tokens into text as they come."""

from collections.abc import Sequence

from outdraft.engine.tokenizer.tokenizer import Tokenizer

_UNFINISHED = "\ufffd"  # what the bytes of half a character decode to


class TextStream:
    """Incremental detokenization of one sequence.

    Tokens cannot be decoded one by one: a character may span several, and sentencepiece drops
    the space of a first token. So a window is decoded twice, the tokens already shown and all of
    it, and the difference is the new text. The window moves on when the text ends with a whole
    character, so it stays a few tokens long.

    `after` is what precedes the first token (the prompt's last tokens): with it, a sentencepiece
    model's first new word keeps its leading space.
    """

    def __init__(self, tokenizer: Tokenizer, *, after: Sequence[int] = ()) -> None:
        self._decode = tokenizer.decode
        self._ids = list(after[-6:])
        self._num_shown = len(self._ids)

    def feed(self, ids: Sequence[int]) -> str:
        """Take the next tokens and return the new text, "" while a character is unfinished."""
        return "".join([self._feed_one(token) for token in ids])

    def finish(self) -> str:
        """What was held back, at the end of the sequence."""
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
