"""Every bound: what is over it is answered with 400 and the field's name, never with 500."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from outdraft.engine.sequence import MAX_BIAS, MAX_CHOICES, MAX_LOGPROBS, MAX_STOP_STRINGS
from outdraft.server import protocol
from outdraft.server.app import MAX_BODY_BYTES
from outdraft.server.protocol import (
    MAX_BIASED_TOKENS,
    MAX_MESSAGES,
    MAX_PENALTY,
    MAX_PROMPTS,
    MAX_STOP_LENGTH,
    MAX_TEMPERATURE,
    MAX_TOKENS,
)
from outdraft.speculation import MAX_K
from tests.server.wire import CHAT, COMPLETIONS, PROMPT, Wire, error_of

CONTEXT, VOCABULARY = 512, 384
JSON = {"Content-Type": "application/json"}


def message(**fields: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": "a", **fields}]


def biases(count: int) -> dict[str, int]:
    return {str(token): 1 for token in range(count)}


# Field, the last values that are taken, the first that are not.
BOTH: list[tuple[str, list[Any], list[Any]]] = [
    ("max_tokens", [1, MAX_TOKENS], [-1, MAX_TOKENS + 1, 1.5, "5", True]),
    ("min_tokens", [0, 2], [-1, MAX_TOKENS + 1, 3, None]),  # more than max_tokens
    ("n", [1, 4], [0, -1, MAX_CHOICES + 1, 1 << 70, 2.0]),
    ("temperature", [0, MAX_TEMPERATURE], [-0.1, MAX_TEMPERATURE + 1, "hot", True, [1]]),
    ("top_p", [0.001, 1], [0, 1.1, -1]),
    ("top_k", [-1, 0, 1 << 31], [-2, (1 << 31) + 1, 2.5]),
    ("min_p", [0, 1], [-0.1, 1.1]),
    ("repetition_penalty", [0.1, MAX_PENALTY], [0, -1, MAX_PENALTY + 1]),
    ("presence_penalty", [-2, 2], [-2.1, 2.1]),
    ("frequency_penalty", [-2, 2], [-2.1, 2.1]),
    (
        "logit_bias",
        [{}, {"5": MAX_BIAS, "6": -MAX_BIAS}, biases(VOCABULARY)],
        [{"5": MAX_BIAS + 1}, {"5": None}, {"x": 1}, {"-1": 1}, {"1" * 11: 1}, [1], "5",
         {str(VOCABULARY): 1}, biases(MAX_BIASED_TOKENS + 1)],
    ),
    ("seed", [-(1 << 63), (1 << 63) - 1], [1 << 63, -(1 << 63) - 1, 1.0]),
    (
        "stop",
        ["a", [], ["a"] * MAX_STOP_STRINGS, "a" * MAX_STOP_LENGTH],
        ["", [""], ["a"] * (MAX_STOP_STRINGS + 1), "a" * (MAX_STOP_LENGTH + 1), [1], 1],
    ),
    (
        "stop_token_ids",
        [[], [VOCABULARY - 1] * MAX_STOP_STRINGS],
        [[VOCABULARY], [-1], [1 << 40], [1] * (MAX_STOP_STRINGS + 1), ["a"], 5],
    ),
    ("ignore_eos", [True, False], ["yes", 1, None]),
    ("stream", [False, None], ["yes", 1]),
    ("stream_options", [None, {}], ["yes", True]),
    ("speculation", [{"k": 0}, {"k": MAX_K}], [{"k": -1}, {"k": MAX_K + 1}, {"method": "a" * 65}]),
    (
        "slo",
        [None, {"tpot_ms": 0.1}, {"tpot_ms": 3_600_000}, {"e2e_ms": 86_400_000}],
        [{}, {"tpot_ms": 0}, {"tpot_ms": 3_600_001}, {"tpot_ms": "30"}, {"e2e_ms": 0}, 30],
    ),
    ("include_metrics", [True], ["yes"]),
    ("return_token_ids", [True], ["yes"]),
    ("model", ["tiny", None], [5, "a" * 1025]),
    ("user", ["a" * 4096], ["a" * 4097, 5]),
    ("request_id", ["a" * 256], ["a" * 257]),
    ("skip_special_tokens", [True], [False]),
    ("use_beam_search", [False], [True]),
]  # fmt: skip
COMPLETION: list[tuple[str, list[Any], list[Any]]] = [
    (
        "prompt",
        ["a", [VOCABULARY - 1], ["a"] * 4, [[1], [2, 3]]],
        [None, 5, {}, [], [[]], "", ["a", ""], [1, "a"], ["a", [1]], [1.5], [True], [-1],
         [VOCABULARY], [[VOCABULARY]], [1 << 32], ["a"] * (MAX_PROMPTS + 1), [1] * CONTEXT,
         [[1] * CONTEXT], " the" * CONTEXT],
    ),
    ("echo", [True], ["yes"]),
    ("logprobs", [0, MAX_LOGPROBS], [-1, MAX_LOGPROBS + 1, True, "5"]),
    ("best_of", [1], [2]),
    ("suffix", [""], ["b"]),
]  # fmt: skip
CONVERSATION: list[tuple[str, list[Any], list[Any]]] = [
    (
        "messages",
        [message(content=None), message(content=[]), message(role="r" * 64), message() * 32],
        [[], None, "a", ["a"], message() * (MAX_MESSAGES + 1), message(role="r" * 65),
         message(role=5), message(content=5), message(content=[{"type": "text"}]),
         message(name="n" * 257), message(tool_calls=[{}]), message(content=" the" * CONTEXT),
         message(content=[{"type": "text", "text": ""}] * (MAX_MESSAGES + 1))],
    ),
    ("max_completion_tokens", [1, MAX_TOKENS], [-1, MAX_TOKENS + 1]),
    ("logprobs", [True, False, None], [3, "yes"]),
    ("top_logprobs", [0, MAX_LOGPROBS], [-1, MAX_LOGPROBS + 1, True]),
    ("response_format", [{"type": "text"}], [{"type": "json_schema"}, "text"]),
    ("metadata", [{}, biases(0)], [{str(i): "a" for i in range(17)}, {"a": 1}]),
    ("service_tier", ["auto", "default"], ["flex"]),
]  # fmt: skip
TABLES = ((COMPLETIONS, BOTH + COMPLETION), (CHAT, BOTH + CONVERSATION))
ROWS = [(path, *row) for path, table in TABLES for row in table]


def asked(path: str, field: str, value: Any) -> dict[str, Any]:
    """A short request with nothing special in it but the field."""
    more: dict[str, Any] = {"logprobs": True} if (path, field) == (CHAT, "top_logprobs") else {}
    if field.startswith("max_"):
        more = {"logit_bias": {"0": MAX_BIAS}}  # ends at once, however much it may write
    return {"max_tokens": 2, **more, field: value}


@pytest.mark.parametrize(("path", "field", "taken", "refused"), ROWS)
def test_a_field_and_its_bounds(
    wire: Wire, path: str, field: str, taken: list[Any], refused: list[Any]
) -> None:
    for value in taken:
        wire.ask(path, **asked(path, field, value))
    for value in refused:
        error = wire.refused(path, **asked(path, field, value))
        assert (error["type"], error["param"]) == ("invalid_request_error", field), value
        assert field.split("_")[0] in error["message"]


def test_every_field_has_its_row() -> None:
    """A field without one is a bound that nobody has tried."""
    free = {
        "spaces_between_special_tokens", "add_special_tokens", "add_generation_prompt",
        "parallel_tool_calls", "tools", "tool_choice", "store",  # see test_chat
    }  # fmt: skip
    for model, path in ((protocol.CompletionRequest, COMPLETIONS), (protocol.ChatRequest, CHAT)):
        tried = {field for at, field, _, _ in ROWS if at == path}
        assert set(model.model_fields) - free == tried


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT, "/tokenize", "/detokenize"])
def test_unknown_fields_are_named(wire: Wire, path: str) -> None:
    needed = {"prompt": "a"} if path == "/tokenize" else {"tokens": [5]}
    body = needed if path.endswith("tokenize") else {}
    error = wire.refused(path, **body, temprature=1)
    assert (error["param"], error["code"]) == ("temprature", "unknown_field")


def test_a_prompt_that_just_fits(wire: Wire) -> None:
    """One token must be left to write."""
    answer = wire.complete([5] * (CONTEXT - 1), max_tokens=9, ignore_eos=True)
    assert answer["usage"]["total_tokens"] == CONTEXT
    error = wire.refused(COMPLETIONS, prompt=[5] * CONTEXT)
    assert f"{CONTEXT} tokens" in error["message"]


def test_more_texts_than_the_server_holds(wire: Wire) -> None:
    """Never room for them, so waiting would not help: no 429."""
    error = wire.refused(COMPLETIONS, prompt=["a"] * 5, n=MAX_CHOICES)
    assert error["param"] == "n"
    assert "320" in error["message"]


# ------------------------------------------------------------------ numbers and texts


@pytest.mark.parametrize(
    "number", ["NaN", "Infinity", "-Infinity", "1e999", "1" + "0" * 400, "-1" + "0" * 4000]
)
@pytest.mark.parametrize(
    "field", ["temperature", "top_p", "presence_penalty", "max_tokens", "seed"]
)
def test_numbers_that_are_none(wire: Wire, field: str, number: str) -> None:
    content = f'{{"prompt": "a", "{field}": {number}}}'
    error = error_of(wire.client.post(COMPLETIONS, content=content, headers=JSON), 400)
    assert error["param"] == field


@pytest.mark.parametrize(
    "content",
    [
        '{"prompt": "\\ud800"}',
        '{"prompt": ["a", "\\udc00"]}',
        '{"prompt": "a", "stop": "\\ud83d"}',
        '{"prompt": "a", "\\ud800": 1}',
        '{"prompt": "a", "user": "\\ude00\\ud83d"}',
        '{"prompt": "a", "logit_bias": {"\\ud800": 1}}',
        '{"messages": [{"role": "user", "content": "\\ud800"}]}',
        '{"messages": [{"role": "\\ud800", "content": ""}]}',
        '{"messages": [{"role": "user", "content": ""}], "metadata": {"\\ud800": "a"}}',
        b'{"prompt": "\xed\xa0\x80"}',
        b'{"prompt": "\xff"}',
        b'{"prompt": "\xff\xfe',
    ],
)
@pytest.mark.parametrize("path", [COMPLETIONS, CHAT, "/tokenize"])
def test_texts_that_are_none(wire: Wire, path: str, content: str | bytes) -> None:
    """Half a character by itself: no tokenizer takes it, and pydantic panics over such a key."""
    error = error_of(wire.client.post(path, content=content, headers=JSON), 400)
    assert (error["param"], error["code"]) == ("body", "invalid_json")


@pytest.mark.parametrize("path", [COMPLETIONS, "/tokenize"])
def test_texts_of_any_characters(wire: Wire, path: str) -> None:
    for prompt in ("\0", "\U0001f600", "é", "﷽", "￿", " ", "\r\n\t", "<|im_start|>", "�"):
        content = json.dumps({"prompt": prompt})  # with escapes, in pairs where need be
        assert wire.client.post(path, content=content, headers=JSON).status_code == 200


# ------------------------------------------------------------------ bodies


@pytest.mark.parametrize("depth", [10, 900, 960, 1000, 100_000])
@pytest.mark.parametrize("field", ["prompt", "unknown", "tools"])
def test_deep_nesting(wire: Wire, field: str, depth: int) -> None:
    content = f'{{"{field}": {"[" * depth}{"]" * depth}}}'
    for path in (COMPLETIONS, CHAT):
        error_of(wire.client.post(path, content=content, headers=JSON), 400)


@pytest.mark.parametrize("content", [b"", b" ", b"{", b"prompt=a", b"{'prompt': 'a'}", b"{} {}"])
def test_not_json(wire: Wire, content: bytes) -> None:
    error = error_of(wire.client.post(COMPLETIONS, content=content, headers=JSON), 400)
    assert error["param"] == "body"


@pytest.mark.parametrize("content", [b"null", b"[]", b'"a"', b"5", b"NaN"])
def test_json_that_is_no_object(wire: Wire, content: bytes) -> None:
    error = error_of(wire.client.post(COMPLETIONS, content=content, headers=JSON), 400)
    assert error["param"] == "body"


@pytest.mark.parametrize(
    "kind", [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "json"]
)
def test_other_content_types(wire: Wire, kind: str | None) -> None:
    headers = {} if kind is None else {"Content-Type": kind}
    error = error_of(
        wire.client.post(COMPLETIONS, content=b'{"prompt": "a"}', headers=headers), 400
    )
    assert error["param"] == "body"


def padded(size: int) -> bytes:
    """A good request of just so many bytes."""
    return b'{"prompt": "a", "max_tokens": 1}'.ljust(size)


def pieces(content: bytes) -> Iterator[bytes]:
    """Sent as they come: no Content-Length says how many."""
    for start in range(0, len(content), 1 << 16):
        yield content[start : start + (1 << 16)]


@pytest.mark.parametrize("chunked", [False, True])
def test_the_largest_body(wire: Wire, chunked: bool) -> None:
    def post(size: int) -> httpx.Response:
        content = pieces(padded(size)) if chunked else padded(size)
        return wire.client.post(COMPLETIONS, content=content, headers=JSON)

    assert post(MAX_BODY_BYTES).status_code == 200
    error = error_of(post(MAX_BODY_BYTES + 1), 400)
    assert (error["param"], error["code"]) == ("body", "body_too_large")
    assert str(MAX_BODY_BYTES) in error["message"]
    assert wire.complete(PROMPT, max_tokens=1)["choices"]


# ------------------------------------------------------------------ paths


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/completion", "/v1/completions/x", "/%ED%A0%80"])
def test_paths_that_are_not_there(wire: Wire, path: str) -> None:
    assert error_of(wire.client.post(path, json={}), 404)["type"] == "not_found_error"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [("GET", COMPLETIONS, "POST"), ("PUT", CHAT, "POST"), ("POST", "/health", "GET"),
     ("DELETE", "/v1/models", "GET"), ("GET", "/tokenize", "POST")],
)  # fmt: skip
def test_methods_that_are_not_there(wire: Wire, method: str, path: str, allowed: str) -> None:
    answer = wire.client.request(method, path)
    assert error_of(answer, 405)["type"] == "invalid_request_error"
    assert answer.headers["allow"] == allowed


def test_models_that_are_not_there(wire: Wire) -> None:
    for path in (COMPLETIONS, CHAT):
        error = wire.refused(path, 404, model="gpt")
        assert (error["param"], error["code"]) == ("model", "model_not_found")
        assert "'gpt'" in error["message"]
    error = error_of(wire.client.get("/v1/models/some/gpt"), 404)
    assert error["param"] == "model"
