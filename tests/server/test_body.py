"""Bodies: what is JSON to us. Whatever else comes, the one error is JSONDecodeError."""

from __future__ import annotations

import json

import pytest

from outdraft.server.body import parse_body


@pytest.mark.parametrize(
    "value",
    [{"a": [1, 2.5, None, True]}, "é\U0001f600", "\\ud800", "", [], 0, {"\U0001f600": "\ue000"}],
    ids=ascii,
)
@pytest.mark.parametrize("escaped", [False, True])
def test_json_comes_back(value: object, escaped: bool) -> None:
    """Pairs of surrogates in escapes are characters, and a backslash may stand before a u."""
    assert parse_body(json.dumps(value, ensure_ascii=escaped).encode()) == value


def test_a_byte_order_mark_is_overlooked() -> None:
    assert parse_body(b'\xef\xbb\xbf{"a": 1}') == {"a": 1}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"{'a': 1}",
        b'{"a": 1} 2',
        b'"\\ud800"',
        b'"\\uDFFF"',
        b'{"\\udc00\\ud800": 1}',
        b'["\\ud83d", "\\ude00"]',
        b'"\xed\xa0\x80"',
        b'"\xff"',
        '{"a": 1}'.encode("utf-16"),
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a": ' * 100_000,
        b"1" * 5000,
    ],
    ids=lambda body: ascii(body[:20]),
)
def test_what_is_not_json(body: bytes) -> None:
    with pytest.raises(json.JSONDecodeError):
        parse_body(body)
