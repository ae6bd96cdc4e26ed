"""What an engine lacks becomes the nearest thing it has, and a note."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outdraft.backends.backend import Serving
from outdraft.backends.lookup import backend_elsewhere
from outdraft.backends.vllm.backend import Vllm
from outdraft.backends.vllm.installation import TABLE
from outdraft.emit.config import nearest_config
from outdraft.emit.nearest import nearest
from outdraft.errors import OptionError
from outdraft.speculation import METHODS, OFF, QUANTIZATIONS, RULES, WITH_DRAFT, Speculation

SCHEDULE = ((1, 4, 5), (5, 16, 3), (17, 256, 0))
VERSIONS = {"vllm": "0.32.0", "sglang": "0.5.23", "llamacpp": "any"}
BACKENDS = {engine: backend_elsewhere(engine, version) for engine, version in VERSIONS.items()}
DRAFT = Speculation("draft_model", draft="/m/d.gguf", k=5)
HEAD = Speculation("eagle", draft="org/head", k=5)


def found(engine: str, speculation: Speculation, k: int = 4) -> tuple[Speculation, str]:
    meant, notes = nearest(BACKENDS[engine], speculation, k=k)
    return meant, "\n".join(notes)


@pytest.mark.parametrize("engine", BACKENDS)
@pytest.mark.parametrize("method", METHODS)
def test_everything_but_a_method_has_a_nearest(engine: str, method: str) -> None:
    """Whatever is asked for, what comes out is accepted: unless the method itself is lacking."""
    draft = "/m/d.gguf" if method in WITH_DRAFT else None
    serving = Serving("/m/t.gguf" if engine == "llamacpp" else "org/t")
    for rule in ("coupled",) if method == "auto" else RULES:
        for quantization in QUANTIZATIONS:
            for schedule in ((), SCHEDULE):
                asked = Speculation(
                    method, 5, draft, quantization, rule, schedule=schedule,
                    draft_tensor_parallel_size=1,
                )  # fmt: skip
                if draft and engine == "vllm":
                    asked = replace(asked, draft="org/d")
                meant, notes = nearest(BACKENDS[engine], asked, k=3)
                assert method not in WITH_DRAFT or (meant == asked) == (not notes)
                if method not in BACKENDS[engine].capabilities().methods:
                    with pytest.raises(OptionError):
                        nearest_config(engine, asked, serving, k=3, version=VERSIONS[engine])
                    continue
                config = nearest_config(engine, asked, serving, k=3, version=VERSIONS[engine])
                assert set(notes) <= set(config.notes)


def test_what_an_engine_has_is_left_alone() -> None:
    scheduled = replace(HEAD, schedule=SCHEDULE, rule="rejection")
    assert found("sglang", scheduled) == (scheduled, "")
    whole = replace(DRAFT, schedule=SCHEDULE, quantization="int8")
    assert found("vllm", whole) == (whole, "")
    assert found("llamacpp", OFF) == (OFF, "")


@pytest.mark.parametrize(
    ("engine", "words"), [("llamacpp", "llama.cpp has none"), ("sglang", "none for draft_model")]
)
def test_a_schedule_becomes_the_length_of_one_load(engine: str, words: str) -> None:
    meant, note = found(engine, replace(DRAFT, schedule=SCHEDULE))
    assert meant == replace(DRAFT, k=4)
    assert words in note
    assert "5 to 16 requests: k = 3, 17 to 256 requests: off" in note
    off, note = found(engine, replace(DRAFT, schedule=SCHEDULE), k=0)
    assert off == OFF
    assert "off is right" in note


def test_an_old_vllm_has_no_schedule() -> None:
    old = Vllm(TABLE.installation("0.22.0"))
    meant, [note] = nearest(old, replace(DRAFT, schedule=SCHEDULE), k=4)
    assert meant == replace(DRAFT, k=4)
    assert "vLLM has none:" in note


def test_bits_of_a_draft() -> None:
    eight, four = replace(DRAFT, quantization="int8"), replace(DRAFT, quantization="int4")
    meant, note = found("llamacpp", eight)
    assert (meant, "Q8_0" in note) == (DRAFT, True)
    meant, note = found("sglang", four)
    assert (meant, "int4 is left out" in note) == (DRAFT, True)
    meant, note = found("vllm", four)
    assert (meant, "nearest" in note) == (eight, True)
    on_cpu = Vllm(replace(TABLE.installation(), device="cpu"))
    assert nearest(on_cpu, eight, k=4)[0] == DRAFT


@pytest.mark.parametrize(
    ("engine", "asked", "got"),
    [
        ("vllm", replace(DRAFT, rule="typical"), "rejection"),
        ("sglang", replace(DRAFT, rule="typical"), "coupled"),
        ("sglang", replace(DRAFT, rule="rejection"), "coupled"),
        ("sglang", replace(HEAD, rule="typical"), "rejection"),
        ("sglang", replace(HEAD, rule="rejection"), "rejection"),
    ],
)
def test_rules(engine: str, asked: Speculation, got: str) -> None:
    meant, note = found(engine, asked)
    assert meant.rule == got
    assert (f"{got} stands in for {asked.rule}" in note) == (got != asked.rule)
