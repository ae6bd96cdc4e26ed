"""A byte-level BPE tokenizer of 384 tokens, the same on every machine.

Three control tokens, the 256 bytes, and merges spelled out from a list of common words: nothing
is trained, so nothing depends on a library's version. Any text goes in and comes back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

TOKENIZER_SIZE = 384
END_OF_TEXT, TURN_START, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
CONTROL = (END_OF_TEXT, TURN_START, TURN_END)
BOS_ID = EOS_ID = 0
TURN_END_ID = 2

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

_WORDS = """
_the _and _of _to _in ing _is _that _for _with _it _as _on _be _this _are _was _have _not _you
er ed es ion ly user assistant system _return _def _self _import print __ the _from _or _by _at
_can _will _code _draft _model _target _token _batch _layer
"""  # an underscore is a space


@dataclass(frozen=True)
class TinyVocab:
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
    known = set(tokens)
    return TinyVocab(tokens, [pair for pair in merges if {*pair, "".join(pair)} <= known])


def tokenizer_json(vocab: TinyVocab) -> dict[str, Any]:
    """The contents of tokenizer.json."""
    byte_level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": True,
    }
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": i, "content": text, **flags, "special": True} for i, text in enumerate(CONTROL)
        ],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {text: i for i, text in enumerate(vocab.tokens)},
            "merges": [list(pair) for pair in vocab.merges],
        },
    }


def tokenizer_config() -> dict[str, Any]:
    """The contents of tokenizer_config.json. No BOS is added."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": END_OF_TEXT,
        "eos_token": END_OF_TEXT,
        "pad_token": END_OF_TEXT,
        "add_bos_token": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 100_000,
        "chat_template": CHAT_TEMPLATE,
    }
