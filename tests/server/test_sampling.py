"""Every sampling field does to the text what it does in the Python API, and does something."""

from __future__ import annotations

from typing import Any

import pytest

from outdraft import Engine, SamplingParams
from tests.server.wire import CHAT, COMPLETIONS, FEW, MESSAGES, PROMPT, Wire, text_of

USUAL: dict[str, Any] = {"temperature": 1.0, "seed": 3, "max_tokens": 20, "ignore_eos": True}
EOS = {"0": 8.0}  # likely after a few tokens

CHANGES: dict[str, dict[str, Any]] = {
    "temperature": {"temperature": 0.1},
    "greedy": {"temperature": 0},
    "top_p": {"top_p": 0.2},
    "top_k": {"top_k": 2},
    "min_p": {"min_p": 0.5},
    "repetition_penalty": {"repetition_penalty": 3.0},
    "presence_penalty": {"presence_penalty": 2.0, "logit_bias": FEW},
    "frequency_penalty": {"frequency_penalty": 2.0, "logit_bias": FEW},
    "logit_bias": {"logit_bias": FEW},
    "seed": {"seed": 4},
    "negative seed": {"seed": -(1 << 63)},
    "max_tokens": {"max_tokens": 7},
    "min_tokens": {"min_tokens": 12, "ignore_eos": False, "logit_bias": EOS},
    "ignore_eos": {"ignore_eos": False, "logit_bias": EOS},
    "stop": {"stop": ["L" + other for other in "FGHIJKLM"], "logit_bias": FEW},
    "one stop": {"stop": "L", "logit_bias": FEW},
    "stop_token_ids": {"stop_token_ids": [43, 44], "logit_bias": FEW},
}


def params_of(fields: dict[str, Any]) -> SamplingParams:
    """A request's fields as the Python API takes them."""
    stop = fields.get("stop", ())
    told = {
        **fields,
        "stop": (stop,) if isinstance(stop, str) else tuple(stop),
        "stop_token_ids": tuple(fields.get("stop_token_ids", ())),
        "logit_bias": {int(token): bias for token, bias in fields.get("logit_bias", {}).items()},
    }
    return SamplingParams(**told)


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
@pytest.mark.parametrize("name", CHANGES)
def test_fields_mean_what_they_mean_in_python(
    wire: Wire, reference: Engine, name: str, path: str
) -> None:
    changed = USUAL | CHANGES[name]
    [choice] = wire.ask(path, return_token_ids=True, **changed)["choices"]
    prompt = reference.tokenizer.apply_chat(MESSAGES) if path == CHAT else PROMPT
    [expected] = reference.generate([prompt], params_of(changed))
    assert choice["token_ids"] == expected.tokens
    assert text_of(choice) == expected.text
    assert expected.finish_reason is not None
    assert choice["finish_reason"] == expected.finish_reason.value
    # Without the field alone (what only makes it visible stays) the text is another.
    field = next(iter(CHANGES[name]))
    usual = {field: USUAL[field]} if field in USUAL else {}
    without = {key: value for key, value in changed.items() if key != field} | usual
    [other] = wire.ask(path, return_token_ids=True, **without)["choices"]
    assert other["token_ids"] != choice["token_ids"]


def test_defaults_are_openais(wire: Wire, reference: Engine) -> None:
    """Temperature 1, and 16 tokens of a completion."""
    [choice] = wire.complete(seed=3, ignore_eos=True, return_token_ids=True)["choices"]
    [expected] = reference.generate([PROMPT], params_of(USUAL | {"max_tokens": 16}))
    assert choice["token_ids"] == expected.tokens


def test_without_a_seed_texts_differ(wire: Wire) -> None:
    first, other = (wire.complete(max_tokens=20)["choices"][0]["text"] for _ in range(2))
    assert first != other


def test_nulls_are_defaults(wire: Wire) -> None:
    """Clients spell out what they do not want."""
    names = (
        "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty",
        "logit_bias", "stop", "stop_token_ids", "n", "logprobs", "echo", "stream",
        "stream_options", "speculation", "best_of", "user", "model",
    )  # fmt: skip
    nulls = wire.complete(**USUAL, **dict.fromkeys(names))
    assert nulls["choices"] == wire.complete(**USUAL)["choices"]


def test_all_tokens_are_top_minus_one(wire: Wire) -> None:
    """vLLM's way to say that nothing is cut."""
    for top_k in (-1, 0):
        assert wire.complete(**USUAL, top_k=top_k)["choices"] == wire.complete(**USUAL)["choices"]
