from __future__ import annotations

import json

import pytest

from outdraft.errors import OptionError
from outdraft.loadgen.endpoint import Endpoint, optional_fields, refused_fields

from .plans import closed

OPTIONAL = optional_fields(stop_at_eos=False)


def test_answers_end_at_their_full_length_or_where_the_model_ends_them() -> None:
    assert {"ignore_eos": True, **optional_fields(stop_at_eos=True)} == OPTIONAL
    assert "ignore_eos" not in optional_fields(stop_at_eos=True)
    assert Endpoint("http://host").optional == OPTIONAL


@pytest.mark.parametrize("end", ["", "/", "/v1", "/v1/", "/v1/chat/completions"])
def test_urls(end: str) -> None:
    assert Endpoint(f"http://host:1{end}").answer_url == "http://host:1/v1/chat/completions"
    assert Endpoint(f"https://host/under{end}").answer_url.startswith("https://host/under/v1/")


@pytest.mark.parametrize("url", ["", "localhost:8000", "ftp://host", "http://"])
def test_no_url(url: str) -> None:
    with pytest.raises(OptionError, match="no URL of a server"):
        Endpoint(url)


def test_a_key_that_cannot_be_sent() -> None:
    with pytest.raises(OptionError, match="the API key holds a line end"):
        Endpoint("http://host", api_key="secret\n")


def test_body_and_headers() -> None:
    endpoint = Endpoint("http://host", model="m", api_key="secret", extra={"top_k": 5})
    [request] = closed(1)
    body = json.loads(endpoint.body(request, OPTIONAL.keys() - {"ignore_eos"}))
    assert body == {
        "messages": [{"role": "user", "content": "write about subject 0"}],
        "max_tokens": 6,
        "temperature": 0.0,
        "seed": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "model": "m",
        "top_k": 5,
        "include_metrics": True,
        "return_spec_tokens_details": True,
    }
    assert endpoint.headers["Authorization"] == "Bearer secret"
    assert "Authorization" not in Endpoint("http://host").headers


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        ({"error": {"message": "unknown field ignore_eos", "param": "ignore_eos"}}, {"ignore_eos"}),
        (
            {"error": {"message": "Unrecognized request argument supplied: ignore_eos"}},
            {"ignore_eos"},
        ),
        ({"message": "ignore_eos is not supported", "object": "error"}, {"ignore_eos"}),
        (
            {"detail": [{"loc": ["body", "include_metrics"], "input": {"ignore_eos": True}}]},
            {"include_metrics"},
        ),
        ({"detail": "no ignore_eos"}, {"ignore_eos"}),
        ({"error": "bad ignore_eos"}, {"ignore_eos"}),
        (["ignore_eos"], {"ignore_eos"}),
        ({"error": {"message": "max_tokens is too large", "param": "max_tokens"}}, set()),
        ({"error": {"message": "ignore_eos_too"}}, set()),
    ],
)
def test_which_field_a_server_refuses(answer: object, named: set[str]) -> None:
    assert refused_fields(json.dumps(answer).encode(), OPTIONAL) == named


def test_an_answer_in_no_known_form() -> None:
    assert refused_fields(b"<p>bad ignore_eos</p>", OPTIONAL) == {"ignore_eos"}
    assert refused_fields(b"\xff", OPTIONAL) == set()
