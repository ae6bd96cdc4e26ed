"""Whatever the OpenAPI page allows or forbids is sent: no answer is a 5xx, none is missing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import Case, GenerationMode

from outdraft.engine.sequence import MAX_CHOICES
from outdraft.server.protocol import MAX_TOKENS, MIN_PENALTY

PATIENCE_S = 60  # an answer that takes longer than this is a hang, on any machine
VOCAB = 384  # of the tiny model
WRITING = ("/v1/completions", "/v1/chat/completions")
TAKING = (*WRITING, "/tokenize", "/detokenize")
FAST, LONG = 80, 1500  # examples of each kind


@pytest.fixture(scope="module")
def api(tiny_server: tuple[str, Any]) -> Any:
    return schemathesis.openapi.from_url(f"{tiny_server[0]}/openapi.json")


@pytest.fixture
def session() -> Iterator[requests.Session]:
    with requests.Session() as session:
        session.trust_env = False
        yield session


def send_many(operation: Any, mode: GenerationMode, count: int, session: requests.Session) -> Any:
    """Sends `count` cases of one operation and looks at each answer; how often each status came."""
    statuses: Counter[int] = Counter()

    @settings(
        max_examples=count,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def one(case: Case) -> None:
        if isinstance(case.body, dict):
            if mode is GenerationMode.POSITIVE:
                case.body = fitting(case.body)
                if case.path == "/tokenize":
                    case.body = either(case.body)
            if case.path in WRITING:
                case.body = bounded(case.body)
        # Not by `case.call`, which leaves a stream after so many events.
        answer = session.request(**case.as_transport_kwargs(), timeout=PATIENCE_S)
        statuses[answer.status_code] += 1
        if answer.status_code == 200:
            check_answer(case, answer)
        else:
            check_refusal(answer)

    one()
    return statuses


def bounded(body: dict[str, Any]) -> dict[str, Any]:
    """The same body with less to write, so that time goes into many bodies and not into texts."""
    small = dict(body)
    for name, most, allowed in (
        ("max_tokens", 6, MAX_TOKENS),
        ("max_completion_tokens", 6, MAX_TOKENS),
        ("n", 2, MAX_CHOICES),
    ):
        value = small.get(name)
        if isinstance(value, int) and most < value <= allowed:  # more stays forbidden
            small[name] = most
    if small.get("max_tokens") is None and "messages" in small:
        small["max_tokens"] = 6  # else a chat is written until the context is full
    return small


def fitting(value: Any, name: str = "") -> Any:
    """The same value with what no page can know: this model's name and the size of its vocabulary.

    And with 5 for 5.0: an integer to JSON Schema, but not to this server.
    """
    if isinstance(value, dict):
        return {key: fitting(each, key) for key, each in value.items()}
    if isinstance(value, list):
        return [fitting(each, name) for each in value]
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        if name in ("prompt", "tokens", "stop_token_ids"):
            return value % VOCAB
        if name == "min_tokens":
            return min(value, 1)
        if name in ("max_tokens", "max_completion_tokens"):
            return max(value, 1)  # nothing to write is refused
    return "tiny" if name == "model" and isinstance(value, str) else value


def either(body: dict[str, Any]) -> dict[str, Any]:
    """With a prompt or with messages: a page has no words for that."""
    if (body.get("prompt") is None) == (body.get("messages") is None):
        return body | {"prompt": "either", "messages": None}
    return body


def parsed(text: bytes) -> Any:
    """JSON as every language reads it: Python alone takes NaN and Infinity."""

    def refuse(name: str) -> Any:
        raise AssertionError(f"{name} is not JSON: {text!r}")

    return json.loads(text, parse_constant=refuse)


def check_refusal(answer: Any) -> None:
    assert 400 <= answer.status_code < 500, (answer.status_code, answer.text)
    error = parsed(answer.content)["error"]
    assert error["message"]
    assert set(error) == {"message", "type", "param", "code"}


def check_answer(case: Case, answer: Any) -> None:
    if case.path not in WRITING:
        parsed(answer.content)
        return
    wanted = (case.body.get("n") or 1) * num_prompts(case.body.get("prompt"))
    if not case.body.get("stream"):
        reasons = {
            each["index"]: each["finish_reason"] for each in parsed(answer.content)["choices"]
        }
    else:
        *events, last = [line for line in answer.content.split(b"\n\n") if line]
        assert last == b"data: [DONE]"
        assert all(event.startswith(b"data: ") for event in events)
        chunks = [parsed(event.removeprefix(b"data: ")) for event in events]
        assert not any("error" in chunk for chunk in chunks)
        choices = [choice for chunk in chunks for choice in chunk["choices"]]
        reasons = {each["index"]: each["finish_reason"] for each in choices}
    assert sorted(reasons) == list(range(wanted))
    assert set(reasons.values()) <= {"stop", "length"}


def num_prompts(prompt: Any) -> int:
    is_list = isinstance(prompt, list) and not isinstance(prompt[0], int)
    return len(prompt) if is_list else 1


def sizes() -> list[Any]:
    return [FAST, pytest.param(LONG, marks=pytest.mark.slow)]


def test_every_operation_is_in_this_file(api: Any) -> None:
    found = {result.ok().path for result in api.get_all_operations() if result.ok().body}
    assert found == set(TAKING)


@pytest.mark.parametrize("count", sizes())
@pytest.mark.parametrize("path", TAKING)
def test_what_the_page_allows(api: Any, path: str, count: int, session: requests.Session) -> None:
    statuses = send_many(api[path]["POST"], GenerationMode.POSITIVE, count, session)
    assert set(statuses) <= {200, 400}
    assert statuses[200] >= count // 3, f"too few of them got anywhere: {statuses}"


@pytest.mark.parametrize("count", sizes())
@pytest.mark.parametrize("path", TAKING)
def test_what_the_page_forbids(api: Any, path: str, count: int, session: requests.Session) -> None:
    statuses = send_many(api[path]["POST"], GenerationMode.NEGATIVE, count, session)
    # Next to none is taken: of two faults the name of the model may be told.
    assert set(statuses) <= {200, 400, 404}
    assert statuses[400] >= 0.98 * count


def test_a_name_in_the_path(api: Any, session: requests.Session) -> None:
    operation = api["/v1/models/{name}"]["GET"]
    statuses = send_many(operation, GenerationMode.POSITIVE, FAST, session)
    assert set(statuses) == {404}


@pytest.mark.parametrize(("penalty", "status"), [(5e-324, 400), (MIN_PENALTY, 200)])
@pytest.mark.parametrize("stream", [False, True])
def test_logprobs_are_numbers(
    url: str, penalty: float, status: int, stream: bool, session: requests.Session
) -> None:
    """Found here once: float32 takes the smallest penalty for 0, and NaN was in the answer."""
    body = {"prompt": "one two three", "logprobs": 5, "temperature": 5e-324, "stream": stream}
    answer = session.post(
        f"{url}/v1/completions", json=body | {"repetition_penalty": penalty}, timeout=PATIENCE_S
    )
    assert answer.status_code == status
    for event in answer.content.removesuffix(b"data: [DONE]\n\n").split(b"\n\n"):
        assert not event or parsed(event.removeprefix(b"data: "))


@pytest.mark.slow
def test_the_tool_itself_finds_nothing(url: str, api: Any, tmp_path: Path) -> None:
    """Its command line has a phase of its own, which tries every bound from both sides."""
    done = subprocess.run(
        [sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()",
         "run", f"{url}/openapi.json", "--checks", "not_a_server_error", "--max-examples", "50",
         "--phases", "coverage,fuzzing", "--generation-deterministic", "--no-color",
         "--request-timeout", str(PATIENCE_S)],
        capture_output=True, text=True, timeout=1800, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(f"{len([*api.get_all_operations()])} passed") == 2, done.stdout
