from __future__ import annotations

import pytest

from outdraft.backends.lookup import ENGINES, backend_named
from outdraft.errors import OptionError


@pytest.mark.parametrize("name", ENGINES)
def test_every_engine_has_a_backend_of_its_name(name: str) -> None:
    assert backend_named(name).name == name


def test_an_unknown_engine_names_the_known_ones() -> None:
    with pytest.raises(OptionError, match="outdraft, vllm, sglang, llamacpp"):
        backend_named("llama.cpp")
