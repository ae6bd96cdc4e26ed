"""Tokens of a text for a server that counts them, and for one that does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outdraft.errors import BackendError
from outdraft.loadgen.endpoint import Endpoint
from outdraft.measure.token_counts import token_counts
from outdraft.testing.fake_script import Script
from outdraft.testing.fake_server import FakeServer
from outdraft.workload.plan import plan_requests
from outdraft.workload.sets import built_in

PLAN = plan_requests(built_in()[::40], mix=((0.0, 1.0),), seed=0)
QUICK = Script(ttft_s=0.001, tpot_s=0.001)
FEW = "three plain words"


class Templated(FakeServer):
    """Adds five tokens to each prompt: the fake server counts words of what it is sent."""

    def _answer(self, body, request, failure):  # type: ignore[no-untyped-def]
        for message in body["messages"]:
            message["content"] += " and five more of it"
        request = replace(request, prompt=body["messages"][0]["content"])
        return super()._answer(body, request, failure)


def test_by_the_servers_own_page() -> None:
    with FakeServer(QUICK, serve_tokenize=True) as server:
        counts = token_counts(Endpoint(server.url), PLAN)
        assert (counts.count(FEW), counts.count(""), counts.note) == (3, 0, "")
        num_questions = len(server.headers)
        assert counts.count(FEW) == 3
        assert len(server.headers) == num_questions, "it is asked once"
    assert len(server.bodies) == 1
    assert server.bodies[0]["max_tokens"] == 1


def test_with_what_the_server_adds() -> None:
    with Templated(QUICK, serve_tokenize=True) as server:
        counts = token_counts(Endpoint(server.url), PLAN)
        assert (counts.count(FEW), counts.count("")) == (8, 5)


def test_estimated_by_letters() -> None:
    text = " ".join(each.prompt.text for each in PLAN)
    with FakeServer(QUICK) as server:
        counts = token_counts(Endpoint(server.url), PLAN)
    assert counts.count("") == 0
    assert counts.count(text) == pytest.approx(len(text.split()), rel=0.2)
    assert "estimated from the letters of a token in 3 of them" in counts.note


def test_a_server_that_says_nothing() -> None:
    with (
        FakeServer(QUICK, failures={"http_500": 1}) as server,
        pytest.raises(BackendError, match=r"the tokens of a prompt are not known \(http 500"),
    ):
        token_counts(Endpoint(server.url), PLAN)
