"""What is shown is never taken back, and a stop string ends the text wherever tokens cut it."""

from __future__ import annotations

import pytest

from outdraft.engine.tokenizer import Tokenizer, load_tokenizer
from outdraft.engine.transcript import Transcript
from outdraft.testing.tiny_models import tiny_model


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return load_tokenizer(tiny_model(tmp_path_factory.mktemp("transcript"), "llama"))


def letters(tokenizer: Tokenizer, text: str) -> list[int]:
    """One token per character, and per byte of those outside ASCII."""
    return [token for character in text for token in tokenizer.encode(character)]


class Reader:
    """Feeds tokens one by one and keeps what was shown after each."""

    def __init__(self, tokenizer: Tokenizer, stop: tuple[str, ...] = ()) -> None:
        self.transcript = Transcript(tokenizer, stop)
        self.shown: list[str] = []

    def read(self, tokens: list[int], *, group: int = 1) -> str:
        """All that was shown in the end. `group`: tokens per round."""
        for start in range(0, len(tokens), group):
            stopped = any(self.transcript.push(token) for token in tokens[start : start + group])
            if stopped:
                break
            self.shown.append(self.transcript.take())
        self.transcript.finish()
        self.shown.append(self.transcript.take(final=True))
        assert self.transcript.take(final=True) == ""
        assert "".join(self.shown) == self.transcript.text
        return self.transcript.text


def test_text_comes_as_it_is_written(tokenizer: Tokenizer) -> None:
    reader = Reader(tokenizer)
    assert reader.read(letters(tokenizer, "plain")) == "plain"
    assert reader.shown == ["p", "l", "a", "i", "n", ""]


@pytest.mark.parametrize("group", [1, 2, 3, 50])
@pytest.mark.parametrize(
    ("stop", "text", "left"),
    [
        (("END",), "one END two", "one "),
        (("END",), "one EN two", "one EN two"),  # looked like one, was none
        (("END",), "EEND", "E"),
        (("abab",), "xababab", "x"),
        (("aab",), "aaab", "a"),  # the beginning of a match is found again inside it
        (("bc", "abcd"), "xabcd", "xa"),  # the shorter is complete first
        (("abcd", "bce"), "xabce", "xa"),
        (("xy", "xyz"), "wxyz", "w"),
        (("b", "ab"), "zab", "za"[:1]),  # one token completes both: the text ends before both
        (("\n\n",), "a\nb\n\nc", "a\nb"),
        (("é",), "café au lait", "caf"),
        (("END",), "cut EN", "cut EN"),  # held back until the end, then shown
    ],
)
def test_stop_strings(
    tokenizer: Tokenizer, stop: tuple[str, ...], text: str, left: str, group: int
) -> None:
    assert Reader(tokenizer, stop).read(letters(tokenizer, text), group=group) == left


def test_a_token_longer_than_the_stop_string(tokenizer: Tokenizer) -> None:
    [token] = tokenizer.encode(" return")
    reader = Reader(tokenizer, ("tu",))
    assert reader.read([*letters(tokenizer, "so"), token]) == "so re"


def test_what_may_become_a_stop_string_is_held_back(tokenizer: Tokenizer) -> None:
    reader = Reader(tokenizer, ("stop", "toy"))
    reader.read(letters(tokenizer, "a sto toxy"))
    assert reader.shown[:10] == ["a", " ", "", "", "", "sto ", "", "", "tox", "y"]


def test_every_stop_of_every_split_is_never_shown(tokenizer: Tokenizer) -> None:
    """Whatever the words are cut into, nothing of the stop string ever appears."""
    for prefix in ("", "a", "aa", "ab", "aba"):
        reader = Reader(tokenizer, ("abac",))
        text = reader.read(letters(tokenizer, prefix + "abac!"))
        expected = (prefix + "abac!").split("abac", 1)[0]
        assert text == expected
        assert all(expected.startswith("".join(reader.shown[:i])) for i in range(len(reader.shown)))


def test_a_character_split_over_tokens(tokenizer: Tokenizer) -> None:
    reader = Reader(tokenizer)
    tokens = letters(tokenizer, "é😀!")
    assert len(tokens) == 7
    assert reader.read(tokens) == "é😀!"
    assert reader.shown == ["", "é", "", "", "", "😀", "!", ""]


def test_half_a_character_at_the_end_is_shown_as_it_is(tokenizer: Tokenizer) -> None:
    reader = Reader(tokenizer)
    assert reader.read(letters(tokenizer, "a😀")[:-1]) == "a\ufffd"
    assert reader.shown == ["a", "", "", "", "\ufffd"]


def test_stop_strings_may_be_let_pass(tokenizer: Tokenizer) -> None:
    """Before min_tokens a stop string is text; only one that ends later counts."""
    transcript = Transcript(tokenizer, ("ab", "wxyz"))
    assert not any(transcript.push(t, may_stop=False) for t in letters(tokenizer, "-ab"))
    assert not any(transcript.push(token) for token in letters(tokenizer, "cd"))
    assert transcript.text == "-abcd"
    assert [transcript.push(token) for token in letters(tokenizer, "ab")] == [False, True]
    assert transcript.text == "-abcd"
