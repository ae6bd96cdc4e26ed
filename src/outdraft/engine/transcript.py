"""The text of a sequence as it grows: what is final, and where a stop string ends it."""

from collections.abc import Sequence

from outdraft.engine.tokenizer import TextStream, Tokenizer


class Transcript:
    """Tokens go in one by one; `take` returns text that no later token can change."""

    def __init__(
        self, tokenizer: Tokenizer, stop: tuple[str, ...], *, after: Sequence[int] = ()
    ) -> None:
        """`after`: the prompt, so that the first word keeps the space before it."""
        self._stream = TextStream(tokenizer, after=after)
        self._stop = stop
        self._longest_stop = max((len(string) for string in stop), default=0)
        self._num_taken = 0
        self.text = ""
        self.is_stopped = False

    def push(self, token: int, *, may_stop: bool = True) -> bool:
        """Appends a token; True when it completed a stop string (which is then cut off).

        With `may_stop` False, a stop string that this token completes is ordinary text.
        """
        return self._grow(self._stream.feed([token]), may_stop=may_stop)

    def finish(self) -> None:
        """No more tokens: what was held back (half a character) becomes text."""
        if not self.is_stopped:
            self._grow(self._stream.finish())

    def take(self, *, final: bool = False) -> str:
        end = len(self.text)
        if not final:
            end -= self._num_held_back()
        new = self.text[self._num_taken : end]
        self._num_taken = max(self._num_taken, end)
        return new

    def _grow(self, new: str, *, may_stop: bool = True) -> bool:
        before = len(self.text)
        self.text += new
        if not may_stop:
            return False
        # Only matches that end in the new text: earlier ones were allowed.
        matches = [
            at
            for string in self._stop
            if (at := self.text.find(string, max(0, before - len(string) + 1))) >= 0
        ]
        if matches:
            self.text = self.text[: min(matches)]
            self.is_stopped = True
        return self.is_stopped

    def _num_held_back(self) -> int:
        """Length of the longest ending of the text that can still become a stop string."""
        for length in range(min(self._longest_stop - 1, len(self.text)), 0, -1):
            ending = self.text[-length:]
            if any(string.startswith(ending) for string in self._stop):
                return length
        return 0
