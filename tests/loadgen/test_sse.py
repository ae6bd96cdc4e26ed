from __future__ import annotations

import re
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from outdraft.loadgen.sse import Event, SseParser


def events_of(*pieces: bytes, **options: int) -> list[Event]:
    parser = SseParser(**options)
    return [event for piece in pieces for event in parser.feed(piece)]


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    at = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:end] for start, end in pairwise(at)]


def test_openai_stream() -> None:
    stream = b'data: {"a": 1}\n\ndata: {"b": 2}\n\ndata: [DONE]\n\n'
    expected = [Event(b'{"a": 1}'), Event(b'{"b": 2}'), Event(b"[DONE]")]
    assert events_of(stream) == expected
    assert events_of(*(bytes([byte]) for byte in stream)) == expected


def test_line_ends_comments_names_and_several_lines() -> None:
    assert events_of(b"data: a\r\n\r\ndata: b\r\rdata: c\n\n") == [
        Event(b"a"),
        Event(b"b"),
        Event(b"c"),
    ]
    assert events_of(b": ping\n\ndata: a\n: ping\ndata: b\n\n") == [Event(b"a\nb")]
    assert events_of(b"event: error\nid: 7\nretry: 5\ndata:x\n\ndata: y\n\n") == [
        Event(b"x", "error"),
        Event(b"y"),
    ]
    assert events_of(b"\xef\xbb\xbfdata: a\n\n") == [Event(b"a")]
    assert events_of(b"data\n\n") == [Event(b"")]
    assert events_of(b"data:  two spaces\n\n") == [Event(b" two spaces")]


def test_a_carriage_return_at_the_end_of_a_piece() -> None:
    assert events_of(b"data: a\r", b"\n\r", b"\ndata: b\r\n\r\n") == [Event(b"a"), Event(b"b")]
    assert events_of(b"data: a\r", b"\r", b"data: b\n\n") == [Event(b"a"), Event(b"b")]


def test_what_has_no_empty_line_is_no_event() -> None:
    assert events_of(b"data: a\n\ndata: b\n") == [Event(b"a")]


def test_a_name_before_a_read_of_whole_lines_is_kept() -> None:
    assert events_of(b"event: error\n", b"data: x\n\n") == [Event(b"x", "error")]


def test_what_is_too_long_stops_the_parser() -> None:
    parser = SseParser(max_event_bytes=10)
    assert parser.feed(b"data: a\n\n") == [Event(b"a")]
    for _ in range(3):
        assert parser.feed(b"data: ") == []
    assert parser.overflowed
    assert parser.feed(b"data: b\n\n") == []
    lines = SseParser(max_event_bytes=10)
    assert lines.feed(b"data: 1234\n" * 3 + b"\n") == []
    assert lines.overflowed


_LINES = st.sampled_from(
    [
        b"data: a",
        b"data:b",
        b"data: \xc3\xa9{}",
        b"data",
        b": note",
        b"event: error",
        b"",
        b"",
        b"id",
    ]
)
_ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])
_STREAMS = st.lists(st.tuples(_LINES, _ENDS).map(b"".join), max_size=12).map(b"".join)


@settings(derandomize=True, deadline=None)
@given(_STREAMS | st.binary(max_size=40), st.lists(st.integers(0, 1000), max_size=12))
def test_the_split_changes_nothing(stream: bytes, cuts: list[int]) -> None:
    assert events_of(*split(stream, cuts)) == events_of(stream)


@settings(derandomize=True, deadline=None)
@given(_STREAMS, st.lists(st.integers(0, 1000), max_size=12), st.integers(1, 12))
def test_the_split_changes_nothing_where_it_overflows(
    stream: bytes, cuts: list[int], limit: int
) -> None:
    one, many = SseParser(limit), SseParser(limit)
    whole = one.feed(stream)
    assert [event for piece in split(stream, cuts) for event in many.feed(piece)] == whole
    assert one.overflowed == many.overflowed


@settings(derandomize=True, deadline=None)
@given(_STREAMS)
def test_as_the_standard_reads_it(stream: bytes) -> None:
    """Against a reading of the whole text, by lines."""
    expected, data, name = [], [], ""
    for line in re.split(rb"\r\n|\n|\r", stream)[:-1]:
        field, _, value = line.partition(b":")
        if not line:
            if data:
                expected.append(Event(b"\n".join(data), name))
            data, name = [], ""
        elif field == b"data":
            data.append(value.removeprefix(b" "))
        elif field == b"event":
            name = value.removeprefix(b" ").decode()
    assert events_of(stream) == expected
