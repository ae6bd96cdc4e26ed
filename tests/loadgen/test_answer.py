from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outdraft.loadgen.answer import Answer, message_of
from outdraft.loadgen.sse import Event

from .test_reported_acceptance import JSON

USAGE = {"prompt_tokens": 9, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 4}}


def chunk(text: str | None = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    delta = {} if text is None else {"content": text}
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}


def read(*payloads: Any, done: bool = True) -> Answer:
    answer = Answer()
    events = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in payloads]
    for at, data in enumerate([*events, *([b"[DONE]"] if done else [])]):
        answer.add(Event(data), at)
    return answer


def test_a_chat_stream() -> None:
    opening = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}
    answer = read(
        opening, chunk("a b"), chunk(" c"), chunk(finish="stop"), {"usage": USAGE, "choices": []}
    )
    assert answer.text == "a b c"
    assert answer.chunk_ns == [1, 2]  # the opening and the end have no text
    assert (answer.prompt_tokens, answer.completion_tokens, answer.cached_tokens) == (9, 5, 4)
    assert answer.finish_reason == "stop"
    assert answer.is_done
    assert answer.error() is None


def test_a_completions_stream_and_thinking() -> None:
    text = {"choices": [{"text": "hello", "finish_reason": "length"}], "usage": USAGE}
    assert read(text).text == "hello"
    thought = {"choices": [{"delta": {"reasoning_content": "hm", "content": None}}]}
    answer = read(thought, chunk("yes", "stop", usage=USAGE))
    assert answer.text == "hmyes"
    assert answer.chunk_ns == [0, 1]
    assert answer.error() is None


def test_the_last_usage_counts() -> None:
    answer = read(chunk("a", usage={"completion_tokens": 1}), chunk("b", "stop", usage=USAGE))
    assert answer.completion_tokens == 5


def test_acceptance_anywhere_in_the_stream() -> None:
    answer = read(
        chunk("a", "stop", timings={"draft_n": 4, "draft_n_accepted": 2}), {"usage": USAGE}
    )
    assert answer.acceptance is not None
    assert answer.acceptance.rate == 0.5


@pytest.mark.parametrize(
    ("payloads", "error"),
    [
        ([chunk("a")], "stream ended early"),
        ([], "stream ended early"),
        ([chunk("a", "stop")], "no token counts"),
        ([chunk("a", "stop", usage={"completion_tokens": "5"})], "no token counts"),
        ([chunk(None, "stop", usage=USAGE)], "no text"),
        ([chunk("a", "abort", usage=USAGE)], "aborted by the server: finish reason abort"),
        ([b'{"choices": [', chunk("a", "stop", usage=USAGE)], 'malformed event: {"choices": ['),
        ([b"\xff\xfe", chunk("a", "stop", usage=USAGE)], "malformed event: \ufffd\ufffd"),
        ([[1], chunk("a", "stop", usage=USAGE)], "malformed event: [1]"),
        ([b"[" * 100_000], "malformed event: " + "[" * 79 + "…"),
        ([{"choices": "x"}], "malformed event: choices is no list"),
        ([{"choices": [1]}], "malformed event: a choice is no object"),
        ([chunk("a"), {"error": {"message": "out of\nmemory"}}], "server error: out of memory"),
        ([{"object": "error", "message": "no"}], "server error: no"),
    ],
)
def test_what_makes_an_answer_unusable(payloads: list[Any], error: str) -> None:
    assert read(*payloads).error() == error


def test_a_named_error_event_and_a_blank_one() -> None:
    answer = Answer()
    answer.add(Event(b'{"message": "broken"}', "error"), 1)
    assert answer.error() == "server error: broken"
    blank = read(b"", b"  ", chunk("a", "stop", usage=USAGE))
    assert blank.error() is None


def test_it_ends_early_without_done_only_where_nothing_finished() -> None:
    assert read(chunk("a", "stop", usage=USAGE), done=False).error() is None
    assert read(chunk("a", usage=USAGE), done=False).error() == "stream ended early"


def test_too_long() -> None:
    assert read(chunk("a", "stop", usage=USAGE)).error(overflowed=True) == "event too long"


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        ({"error": {"message": "a"}}, "a"),
        ({"error": "a"}, "a"),
        ({"detail": "a"}, "a"),
        ({"detail": [{"loc": ["x"]}]}, '[{"loc": ["x"]}]'),
        ({"error": {}}, "{}"),
        ("a", "a"),
        ({"message": "x" * 200}, "x" * 79 + "…"),
    ],
)
def test_the_words_of_an_error(payload: Any, words: str) -> None:
    assert message_of(payload) == words


@settings(derandomize=True, deadline=None)
@given(
    st.binary(max_size=20)
    | st.dictionaries(
        st.sampled_from(["choices", "usage", "error", "object", "timings"]), JSON
    ).map(lambda value: json.dumps(value).encode())
    | JSON.map(lambda delta: json.dumps({"choices": [{"delta": delta, "text": delta}]}).encode())
    | JSON.map(lambda usage: json.dumps(chunk("a", usage=usage)).encode())
)
def test_no_event_makes_it_raise(data: bytes) -> None:
    answer = Answer()
    answer.add(Event(data), 1)
    answer.error()
