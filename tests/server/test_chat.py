"""/v1/chat/completions: messages in, messages and deltas out."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from outdraft import Engine, SamplingParams, load_engine
from tests.server.serving import serving
from tests.server.wire import CHAT, FEW, MESSAGES, Wire, error_of, joined, summary, text_of

SEEDED: dict[str, Any] = {"seed": 7, "max_tokens": 20, "ignore_eos": True}
LETTERS: dict[str, Any] = {**SEEDED, "logit_bias": FEW}

FORMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "logprobs": {"logprobs": True, "top_logprobs": 3},
    "drawn logprobs alone": {"logprobs": True},
    "greedy": {"temperature": 0, "logprobs": True, "top_logprobs": 1},
    "choices": {"n": 3},
    "stop": {"stop": ["LL", "KM", "J"], "n": 2, "logprobs": True, "top_logprobs": 1},
    "the end": {"ignore_eos": False, "logit_bias": {"0": 8.0}, "n": 2, "logprobs": True},
}


@pytest.mark.parametrize("name", FORMS)
def test_a_stream_says_what_the_whole_says(wire: Wire, name: str) -> None:
    asked = {**LETTERS, "return_token_ids": True, **FORMS[name]}
    whole = wire.chat(**asked)
    events = wire.events(CHAT, **asked)
    assert joined(events) == [summary(choice) for choice in whole["choices"]]
    assert whole["object"] == "chat.completion"
    assert {event["object"] for event in events} == {"chat.completion.chunk"}
    assert len({event["id"] for event in events}) == 1


def test_a_message_is_the_assistants(wire: Wire) -> None:
    [choice] = wire.chat(**SEEDED)["choices"]
    assert choice["message"]["role"] == "assistant"
    assert choice["message"]["refusal"] is None
    assert choice["logprobs"] is None


def test_every_choice_of_a_stream_opens_with_its_role(wire: Wire) -> None:
    opened = set()
    for event in wire.events(CHAT, **SEEDED, n=3):
        [chunk] = event["choices"]
        assert (chunk["delta"].get("role") == "assistant") == (chunk["index"] not in opened)
        opened.add(chunk["index"])
    assert opened == {0, 1, 2}


def test_usage_of_a_stream(wire: Wire) -> None:
    options = {"include_usage": True}
    *events, last = wire.events(CHAT, **SEEDED, n=2, stream_options=options)
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 40
    assert last["usage"]["prompt_tokens"] == wire.chat(**SEEDED)["usage"]["prompt_tokens"]
    assert all(event["usage"] is None for event in events)


# ------------------------------------------------------------------ messages


def test_the_template_is_used(wire: Wire, reference: Engine) -> None:
    messages = [
        {"role": "system", "content": "the model"},
        {"role": "user", "content": "draft"},
        {"role": "assistant", "content": "target"},
        {"role": "user", "content": "and"},
    ]
    answer = wire.chat(messages, **SEEDED)
    prompt = reference.tokenizer.apply_chat(messages)
    [expected] = reference.generate([prompt], SamplingParams(temperature=1.0, **SEEDED))
    assert text_of(answer["choices"][0]) == expected.text
    assert answer["usage"]["prompt_tokens"] == len(prompt)


def test_a_message_in_parts(wire: Wire) -> None:
    parts = [{"type": "text", "text": "the "}, {"type": "text", "text": "model"}]
    first, other = (
        wire.chat([{"role": "user", "content": content}], **SEEDED)["choices"]
        for content in (parts, "the model")
    )
    assert first == other


def test_an_answer_can_be_handed_back(wire: Wire) -> None:
    """Clients append the whole message of an answer, with fields that say nothing."""
    message = wire.chat(**SEEDED)["choices"][0]["message"]
    more = {**message, "annotations": [], "audio": None, "tool_calls": None, "name": "it"}
    plain = {"role": "assistant", "content": message["content"]}
    question = {"role": "user", "content": "and"}
    first, other = (
        wire.chat([*MESSAGES, said, question], **SEEDED)["choices"] for said in (more, plain)
    )
    assert first == other


def test_the_assistants_turn_can_be_left_out(wire: Wire, reference: Engine) -> None:
    answer = wire.chat(**SEEDED, add_generation_prompt=False)
    prompt = reference.tokenizer.apply_chat(MESSAGES, add_generation_prompt=False)
    assert answer["usage"]["prompt_tokens"] == len(prompt)


def test_messages_a_template_refuses(tiny_folder: Path, tmp_path: Path) -> None:
    """A template's own objection is the client's to hear, and no failure of the server's."""
    folder = shutil.copytree(tiny_folder, tmp_path / "picky")
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings["chat_template"] = "{{ raise_exception('no ' + messages[0]['role']) }}"
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    with serving(load_engine(str(folder), kv_cache_bytes=1 << 20)) as (url, _):
        wire = Wire(url)
        with wire.client:
            for path in (CHAT, "/tokenize"):
                error = wire.refused(path, messages=MESSAGES)
                assert error["param"] == "messages"
                assert "no user" in error["message"]


def test_a_model_without_a_template(tiny_folder: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_folder, tmp_path / "mute")
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    del settings["chat_template"]
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    with serving(load_engine(str(folder), kv_cache_bytes=1 << 20)) as (url, _):
        wire = Wire(url)
        with wire.client:
            error = wire.refused(CHAT)
            assert error["param"] == "messages"
            assert "no chat template" in error["message"]
            assert wire.complete(max_tokens=1)["choices"]


# ------------------------------------------------------------------ length


def test_as_long_as_the_context(wire: Wire) -> None:
    """Without max_tokens a chat goes on until the model ends it or its context is full."""
    long = [{"role": "user", "content": " the model" * 230}]
    answer = wire.chat(long, seed=1, ignore_eos=True)
    assert answer["usage"]["completion_tokens"] > 16  # what a completion would have got
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["total_tokens"] == 512


def test_the_newer_name_of_max_tokens_wins(wire: Wire) -> None:
    for asked in (
        {"max_completion_tokens": 3},
        {"max_completion_tokens": 3, "max_tokens": 9},
        {"max_tokens": 3},
    ):
        assert wire.chat(seed=1, ignore_eos=True, **asked)["usage"]["completion_tokens"] == 3


# ------------------------------------------------------------------ logprobs


def test_logprobs_have_their_bytes(wire: Wire, reference: Engine) -> None:
    """Half a character has no text of its own; the bytes of all tokens make the message."""
    asked = {**SEEDED, "logprobs": True, "top_logprobs": 2, "return_token_ids": True}
    some_bytes = {str(token): 12.0 for token in range(3, 259)}  # single bytes, no control tokens
    [choice] = wire.chat(**asked, logit_bias=some_bytes)["choices"]
    entries = choice["logprobs"]["content"]
    assert len(entries) == len(choice["token_ids"]) == 20
    written = bytes(byte for entry in entries for byte in entry["bytes"])
    assert written.decode(errors="replace") == choice["message"]["content"]
    assert "�" in choice["message"]["content"]
    for token, entry in zip(choice["token_ids"], entries, strict=True):
        assert bytes(entry["bytes"]) == reference.tokenizer.token_bytes(token)
        assert entry["token"] == reference.tokenizer.token_text(token)
        assert len(entry["top_logprobs"]) == 2
        best, second = entry["top_logprobs"]
        assert best["logprob"] >= max(second["logprob"], entry["logprob"])


@pytest.mark.parametrize("top", [None, 0])
def test_logprobs_of_the_drawn_tokens_alone(wire: Wire, top: int | None) -> None:
    [choice] = wire.chat(**SEEDED, logprobs=True, top_logprobs=top)["choices"]
    assert [entry["top_logprobs"] for entry in choice["logprobs"]["content"]] == [[]] * 20


# ------------------------------------------------------------------ what is refused, by name


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"store": True}, "store"),
        ({"functions": []}, "functions"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages"),
        ({"messages": [{"role": "", "content": "a"}]}, "messages"),
        ({"messages": [{"content": "a"}]}, "messages"),
        ({"messages": "hello"}, "messages"),
        ({"messages": [{"role": "tool", "tool_call_id": "1"}]}, "messages.0.tool_call_id"),
    ],
)
def test_what_a_chat_cannot_have(wire: Wire, fields: dict[str, Any], param: str) -> None:
    assert wire.refused(CHAT, **fields)["param"] == param


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"tools": [{"type": "function"}]}, "tools is not served here: describe the functions"),
        ({"response_format": {"type": "json_object"}}, "response_format is not served here: only"),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, "ask for JSON"),
        ({"functions": []}, "functions is not served here: "),
        ({"guided_json": {}}, "guided_json is not served here: ask for JSON in a message"),
        ({"reasoning_effort": "low"}, "reasoning_effort is not served here: say in a message"),
        ({"store": True}, "store is not served here: only false is"),
        ({"temprature": 1}, "unknown field temprature (did you mean temperature?)"),
        ({"frobnicate": 1}, "unknown field frobnicate"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "messages: parts of type 'image_url' are not served; send text alone",
        ),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"id": "1"}]}]},
            "tool_calls is not served here: write the call into the message's content",
        ),
        (
            {"messages": [{"role": "tool", "tool_call_id": "1"}]},
            "tool_call_id is not served here: write what the function returned",
        ),
    ],
)
def test_what_is_not_served_is_said_with_what_to_do(
    wire: Wire, fields: dict[str, Any], said: str
) -> None:
    assert said in wire.refused(CHAT, **fields)["message"]


def test_a_chat_needs_messages(wire: Wire) -> None:
    error = error_of(wire.client.post(CHAT, json={"prompt": "a"}), 400)
    assert error["param"] in ("messages", "prompt")
