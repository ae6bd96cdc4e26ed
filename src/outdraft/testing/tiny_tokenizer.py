"""A byte-level BPE tokenizer of 384 tokens, the same on every machine.

Three control tokens, the 256 bytes, and merges made from a list of common words: nothing is
trained, so nothing depends on a library's version. It encodes and decodes any text.
"""

from pathlib import Path
from typing import Any, NamedTuple

from outdraft.whole_file import read_json

TOKENIZER_SIZE = 384
CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
BOS_ID = EOS_ID = 0
TURN_END_ID = 2

# tokenizer.json, without a vocabulary, and tokenizer_config.json. No BOS is added.
_FILES = Path(__file__).with_name("tiny_tokenizer.json")
CHAT_TEMPLATE: str = read_json(_FILES)["tokenizer_config.json"]["chat_template"]

_WORDS = """
_the _and _of _to _in ing _is _that _for _with _it _as _on _be _this _are _was _have _not _you
er ed es ion ly user assistant system _return _def _self _import print __ the _from _or _by _at
_can _will _code _draft _model _target _token _batch _layer
"""  # an underscore is a space


class TinyVocab(NamedTuple):
    tokens: list[str]  # by id, bytes spelled as GPT-2 spells them
    merges: list[tuple[str, str]]


def byte_spelling() -> dict[int, str]:
    """GPT-2's printable letter for every byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    moved = [byte for byte in range(256) if byte not in plain]
    return {**{b: chr(b) for b in plain}, **{b: chr(256 + i) for i, b in enumerate(moved)}}


def tiny_vocab(size: int = TOKENIZER_SIZE) -> TinyVocab:
    """The first `size` tokens. Below 259 some bytes have no token, and text with them is lost."""
    spelling = byte_spelling()
    tokens = [*CONTROL, *spelling.values()][:size]
    merges: list[tuple[str, str]] = []
    for word in _WORDS.split():
        letters = [spelling[byte] for byte in word.replace("_", " ").encode()]
        left = letters[0]
        for right in letters[1:]:
            joined = left + right
            if joined not in tokens and len(tokens) < min(size, TOKENIZER_SIZE):
                tokens.append(joined)
                merges.append((left, right))
            left = joined
    spelled = set(tokens)
    return TinyVocab(tokens, [pair for pair in merges if {*pair, "".join(pair)} <= spelled])


def tokenizer_files(size: int) -> dict[str, Any]:
    """The contents of tokenizer.json and tokenizer_config.json, by name."""
    vocab = tiny_vocab(size)
    contents = read_json(_FILES)
    contents["tokenizer.json"]["model"] |= {
        "vocab": {text: i for i, text in enumerate(vocab.tokens)},
        "merges": vocab.merges,
    }
    return contents
