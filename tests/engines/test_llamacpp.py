"""Real llama.cpp: the whole contract, and its own parser for everything that we emit."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from outdraft.backends.backend import Backend, Serving, Traffic
from outdraft.backends.checks import preflight
from outdraft.backends.llamacpp import installation as llamacpp_installation
from outdraft.backends.lookup import backend_named
from outdraft.backends.process import start
from outdraft.errors import BackendError
from outdraft.observe import page_difference, read_acceptance
from outdraft.speculation import OFF, Speculation
from outdraft.testing.backend_contract import REPEATING, RunningContract, chat, page_of
from outdraft.testing.tiny_models import tiny_gguf
from tests.engines.places import llama_server

pytestmark = pytest.mark.engines

SMALL = Serving(
    target="smollm2-135m",
    served_name="smollm2",
    max_model_len=1024,
    max_num_seqs=2,
    threads=1,  # two of them collapse when others work on the machine
)
NGRAM = Speculation(method="ngram", k=5)
DRAFT = Speculation(method="draft_model", draft="smollm2-135m", k=3)
EAGLE = Speculation(method="eagle", draft="smollm2-135m", k=3)


@pytest.fixture(autouse=True, scope="module")
def _here() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(llamacpp_installation.VARIABLE, str(llama_server()))
        yield


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Serving:
    """Where the words do not matter: thousands of tokens a second."""
    file = tiny_gguf(tmp_path_factory.mktemp("tiny") / "tiny.gguf", context=2048)
    return Serving(str(file), served_name="tiny", max_model_len=1024, max_num_seqs=2, threads=1)


class TestLlamaCpp(RunningContract):
    methods = ("ngram", "draft_model")

    def make_backend(self) -> Backend:
        return backend_named("llamacpp")

    def make_serving(self, folder: Path) -> Serving:
        return SMALL

    def broken_serving(self, folder: Path) -> Serving:
        (folder / "broken.gguf").write_bytes(b"no model at all")
        return Serving(target=str(folder / "broken.gguf"), threads=1)


def parsed(argv: tuple[str, ...]) -> tuple[bool, str]:
    """By llama.cpp itself: --version ends it when all flags before were understood."""
    done = subprocess.run([*argv, "--version"], capture_output=True, text=True, check=False)
    return done.returncode == 0, done.stderr


@pytest.mark.parametrize("speculation", [OFF, NGRAM, DRAFT, EAGLE], ids=lambda each: each.method)
def test_every_configuration_parses(speculation: Speculation) -> None:
    backend = backend_named("llamacpp")
    for slots, length, devices in product((None, 4), (None, 2048), (1, 2)):
        serving = Serving(
            "smollm2-135m", served_name="x", max_num_seqs=slots, max_model_len=length,
            tensor_parallel_size=devices, threads=2,
        )  # fmt: skip
        launch = backend.launch(serving, speculation, 8080)
        understood, said = parsed(launch.argv)
        assert understood, (launch.argv, said)


def test_every_rule_parses() -> None:
    backend = backend_named("llamacpp")
    for rule in backend.capabilities().rules:
        drafting = Speculation(method="draft_model", draft="smollm2-135m", rule=rule)
        understood, said = parsed(backend.launch(SMALL, drafting, 8080).argv)
        assert understood, (rule, said)


@pytest.mark.parametrize(
    ("speculation", "old"),
    [
        (DRAFT, ("--draft-max", "8", "--draft-min", "1", "--ctx-size-draft", "512")),
        (NGRAM, ("--spec-ngram-size-n", "3", "--spec-ngram-size-m", "8")),
    ],
)
def test_old_flags_are_refused_by_it_and_translated_by_us(
    speculation: Speculation, old: tuple[str, ...]
) -> None:
    backend = backend_named("llamacpp")
    plain = backend.launch(SMALL, speculation, 8080).argv
    assert not parsed((*plain, *old))[0], "this version still knows them: test another"
    serving = Serving(SMALL.target, extra=old)
    understood, said = parsed(backend.launch(serving, speculation, 8080).argv)
    assert understood, said


def test_what_is_assumed_of_the_newest_version_is_there() -> None:
    found, newest = llamacpp_installation.detect(), llamacpp_installation.TABLE.installation()
    lacking = set(newest.options) - found.options
    assert lacking <= {"--spec-draft-sampling"}, "the tried version, or one a little older"
    for flag, choices in newest.choices.items():
        assert set(choices) <= set(found.choices[flag])


def test_a_draft_without_a_type_is_loaded_and_not_used(tiny: Serving, tmp_path: Path) -> None:
    """The trap that `--spec-type` is always given for."""
    backend = backend_named("llamacpp")
    serving = replace(tiny, extra=("-md", tiny.target))
    [warning] = [each for each in preflight(backend, serving, OFF, Traffic()) if "-md" in each]
    assert "--spec-type" in warning
    assert drafted(backend, serving, OFF, tmp_path / "off.log") == 0
    drafting = Speculation(method="draft_model", draft=tiny.target)
    assert drafted(backend, tiny, drafting, tmp_path / "on.log") > 0


def test_a_variable_in_the_environment_does_not_speculate(
    tiny: Serving, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LLAMA_ARG_SPEC_TYPE", "draft-simple")
    monkeypatch.setenv("LLAMA_ARG_SPEC_DRAFT_MODEL", tiny.target)
    assert drafted(backend_named("llamacpp"), tiny, OFF, tmp_path / "off.log") == 0


def drafted(backend: Backend, serving: Serving, speculation: Speculation, log: Path) -> int:
    """Tokens drafted for one answer."""
    with start(backend, serving, speculation, log=log) as engine:
        before = page_of(engine)
        chat(engine, REPEATING, max_tokens=32)
        counts = read_acceptance(page_difference(page_of(engine), before))
    assert counts is not None
    return counts.num_draft_tokens


def test_a_wrong_draft_is_named(tiny: Serving, tmp_path: Path) -> None:
    broken = tmp_path / "draft.gguf"
    broken.write_bytes(b"no model at all")
    wrong = Speculation(method="draft_model", draft=str(broken))
    with pytest.raises(BackendError, match="GGUF"):
        start(backend_named("llamacpp"), tiny, wrong, log=tmp_path / "log")


def test_bench_and_compare(tiny: Serving, tmp_path: Path) -> None:
    """The commands a user types, against a real engine with and without speculation."""
    backend = backend_named("llamacpp")
    load = ("--category", "chat", "--concurrency", "2", "--max-tokens", "16", "--json")
    drafting = Speculation(method="draft_model", draft=tiny.target, k=3)
    with (
        start(backend, tiny, OFF, log=tmp_path / "off.log") as off,
        start(backend, tiny, drafting, log=tmp_path / "on.log") as on,
    ):
        bench = outdraft("bench", on.url, *load, "--requests", "8", "--warmup", "2")
        compare = outdraft("compare", off.url, on.url, *load, "--requests", "20", "--block", "4")
    assert bench["summary"]["num_errors"] == 0, bench["problems"]
    assert bench["summary"]["acceptance"]["rate"] > 0
    assert compare["verdict"]["decision"] in ("SHIP", "DON'T SHIP", "INCONCLUSIVE")
    assert compare["ratios"]["e2e"]["low"] > 0
    texts = compare["texts"]["agreement"]
    assert texts["num_compared"] == 20
    assert texts["num_identical"] >= 19 or compare["texts"]["floor"]["num_compared"] == 16
    assert not any("other texts" in each for each in compare["verdict"]["reasons"])


def outdraft(*words: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "outdraft", *words],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found
