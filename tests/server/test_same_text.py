"""The promise: for a seed, the server's text is the Python API's, whoever else is being served."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

import pytest

from outdraft import Engine, SamplingParams, Speculation, load_engine
from tests.server.serving import serving
from tests.server.wire import FEW, Wire

BIAS = {int(token): bias for token, bias in FEW.items()}
KINDS = (
    SamplingParams(),
    SamplingParams(temperature=0.7),
    SamplingParams(temperature=1.0, presence_penalty=0.4, frequency_penalty=0.3,
                   repetition_penalty=1.1),
    SamplingParams(temperature=1.0, top_p=0.95, min_p=0.01, top_k=50),
)  # fmt: skip
Asked = tuple[str, SamplingParams]


def requests(count: int, **fields: Any) -> list[Asked]:
    """Prompts of different lengths with something in them twice, each with its own seed."""
    draw = Random(count)
    words = ["the", "model", "draft", "target", "of", "and", "token", "batch", "layer", "code"]
    made = []
    for index in range(count):
        phrase = " ".join(draw.choice(words) for _ in range(3 + index % 5))
        kind = asdict(KINDS[index % len(KINDS)])
        params = SamplingParams(**{**kind, **fields, "seed": 1000 + index})
        made.append((f" {phrase} " * (2 + index % 3), params))
    return made


def over_http(wire: Wire, asked: Asked, override: dict[str, Any] | None) -> str:
    prompt, params = asked
    fields = {name: value for name, value in asdict(params).items() if name != "prompt_logprobs"}
    fields["logit_bias"] = {str(token): bias for token, bias in params.logit_bias.items()}
    answer = wire.complete(prompt, **fields, speculation=override)
    return str(answer["choices"][0]["text"])


def served(
    wire: Wire, asked: Sequence[Asked], at_once: int, override: dict[str, Any] | None
) -> list[str]:
    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(lambda each: over_http(wire, each, override), asked))


@pytest.fixture(scope="module")
def tiny_texts(reference: Engine) -> list[str]:
    """One by one, in Python, without speculation."""
    asked = requests(16, max_tokens=24, ignore_eos=True, logit_bias=BIAS)
    texts = [reference.generate([prompt], params)[0].text for prompt, params in asked]
    assert len(set(texts)) == 16
    return texts


@pytest.mark.parametrize("at_once", [1, 16])
@pytest.mark.parametrize(
    "override", [None, {"k": 1}, {"method": "off"}], ids=["on", "k 1", "off for the request"]
)
def test_with_speculation(
    wire: Wire, tiny_texts: list[str], at_once: int, override: dict[str, Any] | None
) -> None:
    asked = requests(16, max_tokens=24, ignore_eos=True, logit_bias=BIAS)
    name = "vllm:spec_decode_num_accepted_tokens_total"
    before = wire.metrics().value(name)
    assert served(wire, asked, at_once, override) == tiny_texts
    drafted = wire.metrics().value(name) - before
    assert (drafted > 0) == (override != {"method": "off"})


@pytest.mark.parametrize("at_once", [1, 16])
def test_without_speculation(plain_wire: Wire, tiny_texts: list[str], at_once: int) -> None:
    asked = requests(16, max_tokens=24, ignore_eos=True, logit_bias=BIAS)
    assert served(plain_wire, asked, at_once, None) == tiny_texts


@pytest.mark.slow
@pytest.mark.model
def test_on_the_real_model(smollm2_path: Path) -> None:
    asked = requests(16, max_tokens=16)
    engine = load_engine(
        str(smollm2_path), Speculation("ngram", k=4), kv_cache_bytes=256 << 20,
        max_num_batched_tokens=48,  # less to measure at the start, and prompts come in chunks
    )  # fmt: skip
    prompts, params = zip(*asked, strict=True)
    expected = [each.text for each in engine.generate(prompts, params, k=0)]
    with serving(engine) as (url, _):
        wire = Wire(url)
        with wire.client:
            assert served(wire, asked, 16, None) == expected
            assert wire.metrics().value("vllm:spec_decode_num_accepted_tokens_total") > 0
            # And one alone, part of its prompt found in the cache.
            assert over_http(wire, asked[1], {"method": "off"}) == expected[1]
