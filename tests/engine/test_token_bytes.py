"""Tokens that are parts of characters have bytes; joined, they are the text's."""

from __future__ import annotations

from pathlib import Path

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from outdraft.engine.tokenizer import Tokenizer, TokenizerParts, load_tokenizer
from outdraft.testing.tiny_models import tiny_gguf, tiny_model
from outdraft.testing.tiny_tokenizer import TURN_END_ID, byte_spelling
from tests.engine.test_tokenizer import TEXTS, json_of, sentencepiece_like

ANY = st.text() | st.sampled_from(TEXTS)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return load_tokenizer(tiny_model(tmp_path_factory.mktemp("tiny"), "llama"))


@pytest.fixture(scope="module")
def tiny_from_gguf(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    root = tmp_path_factory.mktemp("gguf")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OUTDRAFT_CACHE", str(root / "cache"))
        return load_tokenizer(tiny_gguf(root / "m.gguf", vocab=500))


@pytest.fixture(scope="module")
def smollm2(smollm2_path: Path) -> Tokenizer:
    return load_tokenizer(smollm2_path)


@pytest.fixture(scope="module")
def known_bytes(smollm2: Tokenizer) -> set[int]:
    vocab = smollm2.vocab()
    return {byte for byte, letter in byte_spelling().items() if letter in vocab}


def joined(tokenizer: Tokenizer, text: str) -> bytes:
    return b"".join(map(tokenizer.token_bytes, tokenizer.encode(text, add_special=False)))


@given(text=ANY)
@settings(deadline=None)
def test_byte_level(tiny: Tokenizer, tiny_from_gguf: Tokenizer, text: str) -> None:
    assert joined(tiny, text) == joined(tiny_from_gguf, text) == text.encode()


@pytest.mark.model
@given(text=ANY)
@settings(deadline=None)
def test_the_default_model(smollm2: Tokenizer, known_bytes: set[int], text: str) -> None:
    """Its vocabulary lacks bytes that hardly any text has; its encoder leaves those out."""
    assert len(known_bytes) > 230
    assert joined(smollm2, text) == bytes(byte for byte in text.encode() if byte in known_bytes)


@given(text=st.text(st.characters(exclude_characters="▁", exclude_categories=["Cs"])))
@settings(deadline=None)
def test_sentencepiece(text: str) -> None:
    """Its own normalizer puts a space before the text; only U+2581 cannot be told from one."""
    assert joined(sentencepiece_like(), text) == (f" {text}".encode() if text else b"")


def test_every_byte_has_its_token(tiny: Tokenizer) -> None:
    ids = tiny.vocab()
    assert {byte: tiny.token_bytes(ids[letter]) for byte, letter in byte_spelling().items()} == {
        byte: bytes([byte]) for byte in range(256)
    }
    pieces = sentencepiece_like()
    ids = pieces.vocab()
    assert [pieces.token_bytes(ids[f"<0x{byte:02X}>"])[0] for byte in range(256)] == [*range(256)]


def test_part_of_a_character(tiny: Tokenizer) -> None:
    pieces = [tiny.token_bytes(token) for token in tiny.encode("é the")]
    assert pieces == [b"\xc3", b"\xa9", b" the"]
    assert sentencepiece_like().token_bytes(2 + 1 + 0xC3) == b"\xc3"


def test_specials_and_unknown_ids(tiny: Tokenizer, tiny_from_gguf: Tokenizer) -> None:
    assert tiny.token_bytes(TURN_END_ID) == b"<|im_end|>"
    assert sentencepiece_like().token_bytes(1) == b"<s>"
    assert tiny.token_bytes(384) == tiny.token_bytes(-1) == b""
    assert tiny_from_gguf.token_bytes(499) == b""  # a padded row of the model


def test_added_tokens_are_their_own_text(tiny: Tokenizer) -> None:
    """Not in GPT-2's alphabet, even where all their letters are: é there is the byte E9."""
    backend = tokenizers.Tokenizer.from_str(json_of(tiny))
    backend.add_tokens(["<é>"])
    more = Tokenizer(TokenizerParts(backend.to_str(), False, ()))
    assert more.encode("a<é>b")[1:2] == [384]
    assert more.token_bytes(384) == "<é>".encode()
    assert joined(more, "a<é>bé") == "a<é>bé".encode()


def test_a_token_outside_the_alphabet_is_as_the_decoder_has_it(tiny: Tokenizer) -> None:
    vocab = {**tiny.vocab(), "日本": 384}
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocab, merges=[]))
    backend.decoder = tokenizers.decoders.Sequence([tokenizers.decoders.ByteLevel()])
    odd = Tokenizer(TokenizerParts(backend.to_str(), False, ()))
    assert odd.token_bytes(384).decode() == odd.decode([384]) == "日本"
    assert odd.token_bytes(odd.vocab()["Ġ"]) == b" "  # a decoder within a sequence is found
