"""How vocabularies spell bytes: a token may be half a character, which has no text of its own."""

import re

import tokenizers

_PLAIN = (*range(33, 127), *range(161, 173), *range(174, 256))
_MOVED = (byte for byte in range(256) if byte not in _PLAIN)
# GPT-2's alphabet: printable bytes are themselves, the others the letters from U+0100 on.
_BYTE_OF = {
    **{chr(byte): byte for byte in _PLAIN},
    **{chr(256 + index): byte for index, byte in enumerate(_MOVED)},
}
_BYTE_TOKEN = re.compile("<0x([0-9A-Fa-f]{2})>")


def is_byte_level(backend: tokenizers.Tokenizer) -> bool:
    """Tested by decoding: a byte-level decoder may be anywhere in a sequence of decoders."""
    return backend.decoder is not None and backend.decoder.decode(["aĠa"]) == "a a"


def byte_level_bytes(piece: str) -> bytes:
    try:
        return bytes(_BYTE_OF[letter] for letter in piece)
    except KeyError:  # not in the alphabet: decoders take such a token as it stands
        return piece.encode()


def sentencepiece_bytes(piece: str) -> bytes:
    byte = _BYTE_TOKEN.fullmatch(piece)
    return bytes.fromhex(byte[1]) if byte else piece.replace("▁", " ").encode()
