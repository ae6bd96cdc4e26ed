"""Errors in OpenAI's form: pure functions."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from outdraft.server.protocol import FIELDS, CompletionRequest
from outdraft.server.refusal import UNSERVED, Refusal, from_validation, shutting_down


def refusal_of(**body: Any) -> Refusal:
    """As FastAPI tells of it: pydantic's errors, with the body before each place."""
    with pytest.raises(ValidationError) as caught:
        CompletionRequest.model_validate(body)
    return from_validation(
        [{**error, "loc": ("body", *error["loc"])} for error in caught.value.errors()]
    )


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (404, "not_found_error"),
        (405, "invalid_request_error"),
        (429, "rate_limit_error"),
        (500, "server_error"),
        (503, "server_error"),
    ],
)
def test_the_type_follows_the_status(status: int, kind: str) -> None:
    error = {"message": "no", "type": kind, "param": "n", "code": "c"}
    assert Refusal(status, "no", param="n", code="c").body == {"error": error}


def test_a_refusal_has_headers_when_waiting_helps() -> None:
    full = Refusal(429, "full", headers={"Retry-After": "3"})
    assert (str(full), full.response.headers["retry-after"]) == ("full", "3")
    assert shutting_down().response.headers["retry-after"] == "5"
    assert "retry-after" not in Refusal(400, "wrong").response.headers


def test_a_field_is_named_with_the_value_seen() -> None:
    refusal = refusal_of(prompt="a", temperature=-1)
    assert (refusal.status, refusal.param) == (400, "temperature")
    assert refusal.message.startswith("temperature: ")
    assert refusal.message.endswith("got -1")


def test_long_values_are_cut() -> None:
    assert len(refusal_of(prompt="a", temperature="x" * 100_000).message) < 200


def test_what_is_not_served_is_not_served() -> None:
    """A field that this server learns leaves the list."""
    served = {"best_of": 1, "suffix": "", "store": False, "tool_choice": "none", "tools": [],
              "response_format": {"type": "text"}, "service_tier": "auto", "audio": None,
              "skip_special_tokens": True, "use_beam_search": False}  # fmt: skip
    assert FIELDS & UNSERVED.keys() <= served.keys()
    for name in UNSERVED:
        refusal = refusal_of(prompt="a", **{name: ["?"]})
        assert refusal.message == f"{name} is not served here: {UNSERVED[name]}"
        assert (refusal.status, refusal.param, refusal.code) == (400, name, "unsupported_field")


def test_an_unknown_field_is_named_with_its_place() -> None:
    refusal = refusal_of(prompt="a", stream_options={"usage": True})
    assert refusal.param == "stream_options.usage"
    assert "unknown field" in refusal.message


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ([], "at least 1"),
        ([[]], "at least 1"),
        ([1, -1], "greater than or equal to 0"),
        (["a"] * 129, "at most 128"),
        ([[1]] * 129, "at most 128"),
        ([[1, 2], [3, -4]], "greater than or equal to 0"),
        ([1, "a"], "valid integer, got 'a'"),
        (5, "valid string"),
    ],
    ids=lambda value: str(value)[:16],
)
def test_a_union_is_told_by_the_member_that_was_meant(prompt: Any, words: str) -> None:
    """pydantic says what is wrong with a prompt as a text, as token ids, as a list of each."""
    refusal = refusal_of(prompt=prompt)
    assert refusal.param == "prompt"
    assert words in refusal.message


@pytest.mark.parametrize(
    "body",
    [
        {"prompt": [-1] * 100_000},
        {"prompt": [""] * 100_000},
        {"prompt": [[]] * 100_000},
        {"prompt": [[-1] * 1000] * 100},
        {"prompt": "a", **{f"x{number}": 1 for number in range(100_000)}},
        {"prompt": "a", "logit_bias": {f"x{number}": 1 for number in range(100_000)}},
        {"prompt": "a", "stop": [""] * 100_000},
    ],
    ids=["ids", "texts", "lists", "ids in lists", "fields", "biases", "stops"],
)
def test_a_flood_of_mistakes_makes_few_errors(body: dict[str, Any]) -> None:
    """An error each would be gigabytes and many seconds in which nobody else is served."""
    with pytest.raises(ValidationError) as caught:
        CompletionRequest.model_validate(body)
    assert caught.value.error_count() < 100
