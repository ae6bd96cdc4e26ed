"""The paths around generation, asked over a real socket."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest
from starlette.requests import Request

from outdraft import Engine, __version__
from outdraft.server.app import offload
from tests.server.serving import serving
from tests.server.wire import COMPLETIONS, MESSAGES, PROMPT, Wire, error_of


def test_healthy(wire: Wire) -> None:
    answer = wire.client.get("/health")
    assert (answer.status_code, answer.content) == (200, b"")


def test_version(wire: Wire) -> None:
    said = wire.client.get("/version").json()
    assert said == {"version": __version__, "method": "ngram"}


def test_models(wire: Wire) -> None:
    listed = wire.client.get("/v1/models").json()
    assert listed["object"] == "list"
    [model] = listed["data"]
    assert (model["id"], model["object"], model["max_model_len"]) == ("tiny", "model", 512)
    assert wire.client.get("/v1/models/tiny").json() == model


def test_several_names_for_one_model(tiny_engine: Engine) -> None:
    """Each is answered under the name it was asked by; names may have slashes."""
    with serving(tiny_engine, model_names=("tiny", "org/tiny")) as (url, _):
        wire = Wire(url)
        with wire.client:
            listed = wire.client.get("/v1/models").json()["data"]
            assert [model["id"] for model in listed] == ["tiny", "org/tiny"]
            assert wire.client.get("/v1/models/org/tiny").json()["id"] == "org/tiny"
            for name, answered in (("tiny", "tiny"), ("org/tiny", "org/tiny"), (None, "tiny")):
                assert wire.complete(model=name, max_tokens=1)["model"] == answered


# ------------------------------------------------------------------ tokens


def test_tokenize(wire: Wire, reference: Engine) -> None:
    tokens = reference.tokenizer.encode(PROMPT)
    answer = wire.ask("/tokenize", prompt=PROMPT)
    assert answer == {
        "count": len(tokens), "max_model_len": 512, "tokens": tokens, "token_strs": None,
    }  # fmt: skip
    spelled = wire.ask("/tokenize", prompt=PROMPT, return_token_strs=True)["token_strs"]
    assert "".join(spelled) == PROMPT
    assert len(spelled) == len(tokens)


@pytest.mark.parametrize("whole", [True, False])
def test_tokenize_a_chat(wire: Wire, reference: Engine, whole: bool) -> None:
    answer = wire.ask("/tokenize", messages=MESSAGES, add_generation_prompt=whole)
    assert answer["tokens"] == reference.tokenizer.apply_chat(MESSAGES, add_generation_prompt=whole)


def test_tokenize_one_thing(wire: Wire) -> None:
    assert wire.refused("/tokenize")["param"] == "prompt"
    assert wire.refused("/tokenize", prompt="a", messages=MESSAGES)["param"] == "prompt"
    assert wire.ask("/tokenize", prompt="")["tokens"] == []


@pytest.mark.parametrize("text", [PROMPT, "é<|im_start|>\n", ""])
def test_detokenize_gives_the_text_back(wire: Wire, text: str) -> None:
    tokens = wire.ask("/tokenize", prompt=text)["tokens"]
    assert wire.ask("/detokenize", tokens=tokens) == {"prompt": text}


@pytest.mark.parametrize("tokens", [[384], [-1], [1 << 70], ["a"], None, "5", [1.5]], ids=str)
def test_tokens_that_are_none(wire: Wire, tokens: object) -> None:
    assert wire.refused("/detokenize", tokens=tokens)["param"] == "tokens"


def test_other_models_have_other_tokens(wire: Wire) -> None:
    assert wire.refused("/tokenize", 404, prompt="a", model="gpt")["param"] == "model"
    assert wire.refused("/detokenize", 404, tokens=[5], model="gpt")["param"] == "model"


# ------------------------------------------------------------------ the unforeseen


@pytest.mark.parametrize(
    ("headers", "apart"),
    [
        ([(b"content-length", b"100")], False),
        ([(b"content-length", b"100000")], True),
        ([(b"transfer-encoding", b"chunked")], True),
    ],
)
def test_large_requests_are_read_aside(headers: Sequence[tuple[bytes, bytes]], apart: bool) -> None:
    """And those of unknown length: others would wait meanwhile."""
    request = Request({"type": "http", "headers": headers})
    where = asyncio.run(offload(request, threading.current_thread))
    assert (where is not threading.current_thread()) == apart


def test_our_own_mistakes_have_openais_form_too(tiny_engine: Engine) -> None:
    """A broken tokenizer stands for a bug: 500, and the server goes on."""
    with serving(tiny_engine) as (url, _):
        wire = Wire(url)
        with wire.client:
            backend = tiny_engine.tokenizer._backend
            del tiny_engine.tokenizer._backend
            error = error_of(wire.client.post(COMPLETIONS, json={"prompt": "a"}), 500)
            assert error["type"] == "server_error"
            tiny_engine.tokenizer._backend = backend
            assert wire.complete(max_tokens=1)["choices"]
            assert wire.metrics().is_idle


def test_tokenizer_info_is_what_a_remote_tokenizer_needs(wire: Wire) -> None:
    """lm-eval's remote tokenizer asks for it before anything else."""
    info = wire.client.get("/tokenizer_info").json()
    assert info["eos_token"]
    assert "chat_template" in info


def test_a_form_is_told_which_header_is_missing(wire: Wire) -> None:
    answer = wire.client.post(COMPLETIONS, content=b'{"prompt": "a"}')
    assert "Content-Type: application/json" in error_of(answer, 400)["message"]
