"""The official client, unchanged: what it sends is taken and what it reads is there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from outdraft import Engine
from outdraft.server.serve import Server
from tests.server.conftest import API_KEY
from tests.server.serving import serving
from tests.server.valve import Valve
from tests.server.wire import FEW, MESSAGES, PROMPT

ASKED: dict[str, Any] = {"model": "tiny", "seed": 7, "max_tokens": 12, "logit_bias": FEW}


@pytest.fixture(scope="module")
def client(tiny_server: tuple[str, Server]) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{tiny_server[0]}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_completions(client: OpenAI) -> None:
    whole = client.completions.create(prompt=[PROMPT, "a"], n=2, logprobs=2, **ASKED)
    assert [choice.index for choice in whole.choices] == [0, 1, 2, 3]
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 48
    assert whole.choices[0].logprobs is not None
    assert whole.choices[0].logprobs.top_logprobs is not None
    assert len(whole.choices[0].logprobs.top_logprobs) == 12
    texts = [""] * 4
    for chunk in client.completions.create(prompt=[PROMPT, "a"], n=2, stream=True, **ASKED):
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    assert texts == [choice.text for choice in whole.choices], "texts differ"
    assert len(set(texts)) == 4


def test_chats(client: OpenAI) -> None:
    whole = client.chat.completions.create(
        messages=MESSAGES, n=2, logprobs=True, top_logprobs=2, stop=["\0"], presence_penalty=0.5,
        frequency_penalty=0.5, temperature=0.9, top_p=1, user="me", **ASKED,
    )  # fmt: skip
    first, other = (choice.message.content for choice in whole.choices)
    assert first != other
    assert whole.choices[0].message.role == "assistant"
    entries = whole.choices[0].logprobs.content
    assert b"".join(bytes(entry.bytes) for entry in entries).decode() == first
    assert [len(entry.top_logprobs) for entry in entries] == [2] * 12


def test_a_chat_in_pieces(client: OpenAI) -> None:
    asked: dict[str, Any] = {"messages": MESSAGES, **ASKED}
    whole = client.chat.completions.create(**asked)
    options = {"include_usage": True}
    *chunks, last = client.chat.completions.create(**asked, stream=True, stream_options=options)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == (
        whole.choices[0].message.content
    )
    assert chunks[-1].choices[0].finish_reason == whole.choices[0].finish_reason == "length"
    assert last.choices == []
    assert last.usage.completion_tokens == whole.usage.completion_tokens == 12


def test_the_clients_own_stream_reader(client: OpenAI) -> None:
    """It keeps a snapshot of the message and checks every event on the way."""
    ends = {"logit_bias": {"0": 12}, "max_tokens": 100}  # it objects to texts that were cut short
    asked: dict[str, Any] = {"messages": MESSAGES, **ASKED, **ends}
    with client.chat.completions.stream(**asked, logprobs=True) as stream:
        final = stream.get_final_completion()
    [expected] = client.chat.completions.create(**asked).choices
    assert final.choices[0].finish_reason == expected.finish_reason == "stop"
    assert final.choices[0].message.content == expected.message.content


def test_a_conversation(client: OpenAI) -> None:
    """The message object of one answer goes into the next question as it is."""
    first = client.chat.completions.create(messages=MESSAGES, **ASKED)
    more = [*MESSAGES, first.choices[0].message, {"role": "user", "content": "and"}]
    assert client.chat.completions.create(messages=more, **ASKED).choices[0].message.content


def test_models(client: OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").owned_by == "outdraft"
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("gpt")
    assert caught.value.param == "model"


def test_our_own_fields(client: OpenAI) -> None:
    """`speculation` and vLLM's fields go into extra_body; extra answers come back as they are."""
    asked = {**ASKED, "prompt": PROMPT, "max_tokens": 40}
    extra: dict[str, Any] = {"include_metrics": True, "top_k": 5, "min_p": 0.01, "min_tokens": 2}
    drafted, plain = (
        client.completions.create(**asked, extra_body={**extra, "speculation": override})
        for override in ({"k": 3}, {"method": "off"})
    )
    assert drafted.choices[0].text == plain.choices[0].text, "texts differ"
    counts = [each.metrics["speculative_decoding"] for each in (drafted, plain)]
    assert counts[0]["num_draft_tokens"] > counts[1]["num_draft_tokens"] == 0


def test_async(tiny_server: tuple[str, Server]) -> None:
    """Several at once over one client, whole and in pieces."""

    async def texts() -> list[str]:
        url = f"{tiny_server[0]}/v1"
        async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:

            async def whole(seed: int) -> str:
                asked = {**ASKED, "seed": seed, "messages": MESSAGES}
                answer = await client.chat.completions.create(**asked)
                return answer.choices[0].message.content or ""

            async def pieces(seed: int) -> str:
                asked = {**ASKED, "seed": seed, "messages": MESSAGES}
                stream = await client.chat.completions.create(**asked, stream=True)
                return "".join([c.choices[0].delta.content or "" async for c in stream])

            assert [model.id async for model in client.models.list()] == ["tiny"]
            return await asyncio.gather(*(f(seed) for f in (whole, pieces) for seed in range(4)))

    found = asyncio.run(texts())
    assert found[:4] == found[4:]
    assert len(set(found)) == 4


# ------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("wrong", "param"),
    [({"temperature": -1}, "temperature"), ({"n": 0}, "n"), ({"stop": ["a"] * 17}, "stop"),
     ({"prompt": []}, "prompt"), ({"extra_body": {"speculation": {"k": -1}}}, "speculation"),
     ({"extra_body": {"colour": "red"}}, "colour")],
)  # fmt: skip
def test_bad_requests_name_the_field(client: OpenAI, wrong: dict[str, Any], param: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(**{"prompt": PROMPT, **ASKED, **wrong})
    assert caught.value.param == param
    assert caught.value.type == "invalid_request_error"


def test_no_such_model(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.completions.create(**{**ASKED, "model": "gpt", "prompt": PROMPT})
    assert (caught.value.param, caught.value.code) == ("model", "model_not_found")


def test_keys(locked_url: str) -> None:
    url = f"{locked_url}/v1"
    with OpenAI(base_url=url, api_key=API_KEY, max_retries=0) as client:
        assert client.completions.create(prompt="a", model="tiny").choices
    with (
        OpenAI(base_url=url, api_key="wrong", max_retries=0) as client,
        pytest.raises(openai.AuthenticationError) as caught,
    ):
        client.completions.create(prompt="a", model="tiny")
    assert caught.value.code == "invalid_api_key"


def test_a_full_queue(tiny_engine: Engine) -> None:
    """With `max_retries` the client would come again by itself, after Retry-After."""
    valve = Valve(tiny_engine)
    with (
        serving(tiny_engine, max_open=1) as (url, _),
        OpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0) as client,
        valve.closed(),
    ):
        stream = client.completions.create(prompt=PROMPT, stream=True, **ASKED)
        with pytest.raises(openai.RateLimitError) as caught:
            client.completions.create(prompt=PROMPT, **ASKED)
        assert caught.value.code == "queue_full"
        assert caught.value.response.headers["retry-after"] == "1"
        valve.open()
        assert "".join(chunk.choices[0].text for chunk in stream)
        assert client.completions.create(prompt=PROMPT, **ASKED).choices
