from __future__ import annotations

import pytest

from outdraft.backends.lookup import ENGINES, backend_elsewhere, backend_named
from outdraft.errors import BackendError, OptionError


@pytest.mark.parametrize("name", ENGINES)
def test_every_engine_has_a_backend_of_its_name(name: str) -> None:
    backend = backend_elsewhere(name)
    assert backend.name == name
    assert not backend.installation.is_here


def test_the_installed_one_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    assert backend_named("outdraft").installation.is_here
    monkeypatch.setenv("OUTDRAFT_VLLM", "/nowhere/vllm")
    with pytest.raises(BackendError, match="/nowhere/vllm"):
        backend_named("vllm")


def test_an_unknown_engine_names_the_known_ones() -> None:
    for find in (backend_named, backend_elsewhere):
        with pytest.raises(OptionError, match="outdraft, vllm, sglang, llamacpp"):
            find("llama.cpp")
