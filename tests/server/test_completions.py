"""/v1/completions: prompts in all their forms, and answers whole and in pieces."""

from __future__ import annotations

from typing import Any

import pytest

from outdraft import Engine, SamplingParams
from tests.server.wire import COMPLETIONS, FEW, PROMPT, Wire, joined, summary

SEEDED: dict[str, Any] = {"seed": 7, "max_tokens": 20, "ignore_eos": True}
LETTERS: dict[str, Any] = {**SEEDED, "logit_bias": FEW}  # one letter a token

FORMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "logprobs": {"logprobs": 3},
    "drawn logprobs alone": {"logprobs": 0},
    "greedy": {"temperature": 0, "logprobs": 1},
    "choices": {"n": 3, "logprobs": 1},
    "prompts": {"prompt": [PROMPT, "a", "the draft"], "n": 2},
    "stop": {"stop": ["LL", "KM", "J"], "n": 2, "logprobs": 1},
    "the end": {"ignore_eos": False, "logit_bias": {"0": 8.0}, "n": 2, "logprobs": 1},
    "cut": {"temperature": 0.8, "top_k": 3, "logprobs": 5, "frequency_penalty": 1.0},
}


# ------------------------------------------------------------------ streams


@pytest.mark.parametrize("name", FORMS)
def test_a_stream_says_what_the_whole_says(wire: Wire, name: str) -> None:
    asked = {**LETTERS, "return_token_ids": True, **FORMS[name]}
    whole = wire.ask(COMPLETIONS, **asked)
    events = wire.events(COMPLETIONS, **asked)
    assert joined(events) == [summary(choice) for choice in whole["choices"]]
    assert {event["object"] for event in events} == {whole["object"]} == {"text_completion"}
    assert len({event["id"] for event in events}) == 1
    assert events[0]["id"].startswith("cmpl-") and events[0]["id"] != whole["id"]  # noqa: PT018
    assert all("usage" not in event and "metrics" not in event for event in events)


def test_a_stream_comes_in_pieces(wire: Wire) -> None:
    """One round a piece: with at most 4 drafts a text of 20 tokens takes at least 4."""
    texts = [event["choices"][0]["text"] for event in wire.events(COMPLETIONS, **LETTERS)]
    assert len(texts) >= 4
    assert max(len(text) for text in texts) <= 5


@pytest.mark.parametrize("length", [2, 3, 5])
def test_stop_strings_across_tokens(wire: Wire, length: int) -> None:
    """Every letter is a token, so no stop string is one; what precedes it must not be shown."""
    [whole] = wire.complete(**LETTERS)["choices"]
    for start in range(0, 15, 4):
        stop = whole["text"][start : start + length]
        [cut] = wire.complete(**LETTERS, stop=[stop])["choices"]
        assert cut["text"] == whole["text"][: whole["text"].find(stop)]
        assert cut["finish_reason"] == "stop"
        [streamed] = joined(wire.events(COMPLETIONS, **LETTERS, stop=[stop]))
        assert (streamed["text"], streamed["finish_reason"]) == (cut["text"], "stop")


# ------------------------------------------------------------------ usage


def test_usage_counts(wire: Wire, reference: Engine) -> None:
    prompts = [PROMPT, "the draft"]
    answer = wire.complete(prompts, **SEEDED, n=3, return_token_ids=True)
    usage = answer["usage"]
    assert usage["prompt_tokens"] == sum(len(reference.tokenizer.encode(p)) for p in prompts)
    assert usage["completion_tokens"] == sum(len(c["token_ids"]) for c in answer["choices"]) == 120
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


def test_cached_prompts_are_told(wire: Wire) -> None:
    prompt = [100 + token for token in range(40)]  # two whole blocks and a half
    usages = [wire.complete(prompt, max_tokens=1)["usage"] for _ in range(2)]
    assert [usage["prompt_tokens_details"]["cached_tokens"] for usage in usages] == [0, 32]


def test_usage_at_the_end_of_a_stream(wire: Wire) -> None:
    asked = {**SEEDED, "n": 2, "prompt": [PROMPT, "a"]}
    options = {"include_usage": True}
    *events, last = wire.events(COMPLETIONS, **asked, stream_options=options)
    assert last["choices"] == []
    whole = wire.ask(COMPLETIONS, **asked)["usage"]
    del last["usage"]["prompt_tokens_details"], whole["prompt_tokens_details"]
    assert last["usage"] == whole
    assert all(event["usage"] is None for event in events)


@pytest.mark.parametrize("echo", [False, True])
def test_usage_all_along_a_stream(wire: Wire, echo: bool) -> None:
    """Every chunk tells how far it is, the one that only opens the stream too."""
    options = {"include_usage": True, "continuous_usage_stats": True}
    asked = {**LETTERS, "n": 2, "echo": echo, "return_token_ids": True, "stream_options": options}
    *events, last = wire.events(COMPLETIONS, **asked)
    num_written = 0
    for event in events:
        num_written += len(event["choices"][0]["token_ids"])
        usage = event["usage"]
        assert usage["completion_tokens"] == num_written
        assert usage["total_tokens"] == usage["prompt_tokens"] + num_written
    assert last["usage"]["completion_tokens"] == num_written == 40


def test_running_usage_alone_is_no_usage(wire: Wire) -> None:
    """As in vLLM: `continuous_usage_stats` refines `include_usage`."""
    events = wire.events(COMPLETIONS, **SEEDED, stream_options={"continuous_usage_stats": True})
    assert all("usage" not in event for event in events)


# ------------------------------------------------------------------ prompts and choices


def test_prompts_in_every_form(wire: Wire, reference: Engine) -> None:
    texts = [PROMPT, "the draft", "a"]
    tokens = [reference.tokenizer.encode(text) for text in texts]
    alone = [wire.complete(text, **SEEDED)["choices"][0]["text"] for text in texts]
    assert len(set(alone)) == 3
    for prompts in (texts, tokens):
        answer = wire.complete(prompts, **SEEDED)
        assert [choice["text"] for choice in answer["choices"]] == alone
        assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
    for text, ids in zip(alone, tokens, strict=True):
        assert wire.complete(ids, **SEEDED)["choices"][0]["text"] == text


def test_choices_are_in_order(wire: Wire, reference: Engine) -> None:
    """All of the first prompt's choices, then the second's; the short one ends first."""
    prompts, params = [PROMPT, "a"], SamplingParams(temperature=1.0, n=3, **SEEDED)
    expected = [each.text for each in reference.generate(prompts, params)]
    answer = wire.complete(prompts, n=3, **SEEDED)
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3, 4, 5]
    assert [choice["text"] for choice in answer["choices"]] == expected
    assert len(set(expected)) == 6


def test_special_tokens_in_a_prompt(wire: Wire) -> None:
    """This model's tokenizer adds none, so `add_special_tokens` changes nothing."""
    first, other = (
        wire.complete("<|im_start|>a", max_tokens=1, add_special_tokens=wanted)["usage"]
        for wanted in (True, False)
    )
    assert first["prompt_tokens"] == other["prompt_tokens"] == 2


# ------------------------------------------------------------------ logprobs


def test_logprobs_are_the_engines(wire: Wire, reference: Engine) -> None:
    asked = {**SEEDED, "temperature": 0.7, "logprobs": 4}
    found = wire.ask(COMPLETIONS, **asked)["choices"][0]["logprobs"]
    [expected] = reference.generate([PROMPT], SamplingParams(**asked))
    assert expected.logprobs is not None
    spelled = reference.tokenizer.token_text
    assert found["tokens"] == [spelled(token) for token in expected.tokens]
    assert found["token_logprobs"] == [each.logprob for each in expected.logprobs]
    for top, each in zip(found["top_logprobs"], expected.logprobs, strict=True):
        # Bytes that are no character alone are spelled alike: the likeliest of them is shown.
        best = {spelled(token): logprob for token, logprob in reversed(each.top)}
        assert top == {spelled(each.token): each.logprob, **best}
    lengths = [len(token) for token in found["tokens"]]
    assert found["text_offset"] == [sum(lengths[:place]) for place in range(len(lengths))]


def test_logprobs_of_tokens_that_were_cut(wire: Wire) -> None:
    """Greedy or with top_k 1 all others are out of the question; JSON has no -inf for that."""
    cut = wire.complete(**SEEDED, top_k=1, logprobs=3)["choices"][0]["logprobs"]
    assert cut["token_logprobs"] == [0.0] * 20
    assert all(len(top) == 1 for top in cut["top_logprobs"])


def test_echo_scores_prompts_as_lm_eval_asks(wire: Wire, reference: Engine) -> None:
    """Scored behind its context, a greedy text gets the logprobs it was written with."""
    contexts = [reference.tokenizer.encode(text) for text in (PROMPT, "the draft and the")]
    texts = [
        wire.complete(ids, temperature=0, max_tokens=6, ignore_eos=True, logprobs=1,
                      return_token_ids=True)["choices"][0]
        for ids in contexts
    ]  # fmt: skip
    prompts = [ids + text["token_ids"] for ids, text in zip(contexts, texts, strict=True)]
    answer = wire.complete(prompts, echo=True, max_tokens=1, logprobs=1, temperature=0, seed=1234)
    for ids, text, choice in zip(contexts, texts, answer["choices"], strict=True):
        scored = choice["logprobs"]
        counts = {len(scored[name]) for name in scored}
        assert counts == {len(ids) + 6 + 1}
        assert (scored["token_logprobs"][0], scored["top_logprobs"][0]) == (None, None)
        behind = slice(len(ids), -1)
        assert scored["tokens"][behind] == text["logprobs"]["tokens"]
        assert scored["token_logprobs"][behind] == text["logprobs"]["token_logprobs"]
        # lm-eval's question: were they the likeliest? These were, not all of the prompt's were.
        tops = zip(scored["tokens"][1:], scored["top_logprobs"][1:], strict=True)
        greedy = [top[token] == max(top.values()) for token, top in tops]
        assert all(greedy[len(ids) - 1 :])
        assert not all(greedy)


# ------------------------------------------------------------------ echo


def test_echo_puts_the_prompt_first(wire: Wire) -> None:
    prompts = [PROMPT, "the draft"]
    plain = wire.complete(prompts, **SEEDED, n=2)["choices"]
    echoed = wire.complete(prompts, **SEEDED, n=2, echo=True)["choices"]
    assert [choice["text"] for choice in echoed] == [
        prompts[choice["index"] // 2] + choice["text"] for choice in plain
    ]
    assert joined(wire.events(COMPLETIONS, prompt=prompts, **SEEDED, n=2, echo=True)) == [
        {"text": choice["text"], "token_ids": [], "logprobs": None, "finish_reason": "length"}
        for choice in echoed
    ]


@pytest.mark.parametrize("bias", [{}, {"0": 1000.0}], ids=["any token", "the end"])
def test_nothing_but_the_prompt(wire: Wire, bias: dict[str, float]) -> None:
    """max_tokens 0: the engine has to draw a token, and nobody may see it."""
    asked = {"max_tokens": 0, "echo": True, "return_token_ids": True, "logit_bias": bias}
    answer = wire.ask(COMPLETIONS, **asked, logprobs=2)
    [choice] = answer["choices"]
    assert (choice["text"], choice["token_ids"], choice["finish_reason"]) == (PROMPT, [], "length")
    num_prompt_tokens = answer["usage"]["prompt_tokens"]
    assert len(choice["logprobs"]["token_logprobs"]) == num_prompt_tokens > 1
    assert answer["usage"]["completion_tokens"] == 0
    *events, last = wire.events(COMPLETIONS, **asked, stream_options={"include_usage": True})
    [streamed] = joined(events)
    assert (streamed["text"], streamed["token_ids"]) == (PROMPT, [])
    assert streamed["finish_reason"] == "length"
    assert last["usage"]["completion_tokens"] == 0


def test_what_cannot_be_echoed(wire: Wire) -> None:
    assert wire.refused(COMPLETIONS, max_tokens=0)["param"] == "max_tokens"
    assert wire.refused(COMPLETIONS, echo=True, logprobs=1, stream=True)["param"] == "echo"
