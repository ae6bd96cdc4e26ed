from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from outdraft.backends.backend import Serving, Traffic
from outdraft.backends.checks import check_supported, folder_name, preflight
from outdraft.backends.lookup import ENGINES, backend_elsewhere
from outdraft.backends.vllm.speculative_config import vllm_model
from outdraft.errors import OptionError, PairingError
from outdraft.speculation import METHODS, OFF, RULES, Speculation


def test_names_of_the_catalog_become_what_an_engine_finds(tmp_path: Path) -> None:
    notes: list[str] = []
    assert folder_name("smollm2-135m", notes) == "HuggingFaceTB/SmolLM2-135M-Instruct"
    assert len(notes) == 1
    with pytest.raises(OptionError, match="outdraft export smollm2-135m-eagle --out DIR"):
        folder_name("smollm2-135m-eagle", notes)
    assert Path(folder_name("smollm2-135m-draft", notes)).is_file()
    assert folder_name(str(tmp_path), notes) == str(tmp_path)
    assert folder_name("org/name", notes) == "org/name"


@pytest.mark.parametrize("engine", ENGINES)
def test_what_an_engine_lacks_is_refused_with_what_it_has(engine: str) -> None:
    backend = backend_elsewhere(engine)
    supported, serving = backend.capabilities(), Serving("org/t")
    check_supported(backend, serving, OFF)
    for method, rule in product(METHODS[1:], RULES):
        if method == "auto" and rule != "coupled":
            continue  # no speculation at all
        speculation = Speculation(method, draft="org/d", rule=rule)
        if method in supported.methods and rule in supported.rules_of(method):
            check_supported(backend, serving, speculation)
            continue
        with pytest.raises(OptionError, match=f"{backend.title} has no (method|rule).*valid: "):
            check_supported(backend, serving, speculation)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_draft_of_the_other_kind_is_refused(engine: str) -> None:
    backend = backend_elsewhere(engine)
    for method, name in (("eagle", "draft"), ("draft_model", "eagle")):
        if method in backend.capabilities().methods:
            with pytest.raises(PairingError, match=f"smollm2-135m-{name} is a .*; use method "):
                check_supported(
                    backend, Serving("org/t"), Speculation(method, draft=f"smollm2-135m-{name}")
                )


def test_limits_of_any_server_are_warned_of() -> None:
    serving = Serving("org/t", max_model_len=512, max_num_seqs=4)
    too_much = Traffic(concurrency=9, longest=600)
    for engine in ENGINES:
        longest, waiting, *_ = preflight(backend_elsewhere(engine), serving, OFF, too_much)
        assert "600 tokens" in longest
        assert "9 requests" in waiting


def test_vllm_takes_no_gguf_under_any_name() -> None:
    for name in ("x.gguf", "smollm2-135m-draft"):
        with pytest.raises(OptionError, match="vLLM does not serve GGUF files"):
            vllm_model(name, [])
