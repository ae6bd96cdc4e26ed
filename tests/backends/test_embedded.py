"""Our own engine as a backend: the whole contract, on a tiny model."""

from __future__ import annotations

from pathlib import Path

import pytest

from outdraft.backends.backend import Backend, Serving, Traffic
from outdraft.backends.checks import preflight
from outdraft.backends.embedded import Embedded, own_settings
from outdraft.errors import OptionError
from outdraft.speculation import Speculation
from outdraft.testing.backend_contract import RunningContract
from outdraft.testing.tiny_models import tiny_model


class TestEmbedded(RunningContract):
    def make_backend(self) -> Backend:
        return Embedded()

    def make_serving(self, folder: Path) -> Serving:
        if not (folder / "tiny").exists():
            tiny_model(folder / "tiny", "llama")
        small = ("--kv-cache-memory-bytes", "8000000")  # a second less to start
        return Serving(str(folder / "tiny"), threads=1, served_name="tiny", extra=small)

    def broken_serving(self, folder: Path) -> Serving:
        (folder / "broken.gguf").write_bytes(b"no model at all")
        return Serving(target=str(folder / "broken.gguf"), threads=1)


def test_every_setting_of_a_speculation_comes_through() -> None:
    wanted = Speculation(
        method="draft_model", draft="d.gguf", k=7, quantization="int8", rule="rejection",
        schedule=((1, 4, 7), (5, 16, 2)),
    )  # fmt: skip
    assert Speculation.from_mapping(own_settings(wanted)) == wanted


def test_a_server_forgets_only_where_that_is_wanted() -> None:
    for forgets in (False, True):
        argv = Embedded().launch(Serving("x", forgets=forgets), Speculation(), 1).argv
        assert ("--enable-forget" in argv) is forgets


def test_several_devices_are_refused_with_who_can() -> None:
    with pytest.raises(OptionError, match="vllm"):
        Embedded().launch(Serving("x", tensor_parallel_size=2), Speculation(), 1)


def test_a_request_that_is_too_long_is_said_before_the_start() -> None:
    serving = Serving("x", max_model_len=512)
    [warning] = preflight(Embedded(), serving, Speculation(), Traffic(longest=600))
    assert "600" in warning
    assert "512" in warning
