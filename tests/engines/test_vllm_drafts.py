"""Real vLLM with the drafts that ship: it loads them, and what they draft is accepted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from outdraft.backends.backend import Serving
from outdraft.backends.lookup import backend_named
from outdraft.backends.process import start
from outdraft.distill.saving.export import export_draft
from outdraft.speculation import Speculation
from tests.engines.acceptance import NEAR, accepted, accepted_by_ours
from tests.engines.places import smollm2_folder, vllm

pytestmark = pytest.mark.engines

LIMIT_S = 300.0
K = 5


@pytest.fixture(autouse=True, scope="module")
def _here() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OUTDRAFT_VLLM", str(vllm()))
        yield


def check(speculation: Speculation, log: Path) -> None:
    """vLLM's own counters say what our engine's do: it runs the same draft."""
    serving = Serving(
        target=str(smollm2_folder()),
        served_name="smollm2",
        dtype="float32",
        max_model_len=2048,
        max_num_seqs=4,
        extra=("--enforce-eager",),  # compiled, it starts three times as slowly
    )
    backend = backend_named("vllm")
    with start(backend, serving, speculation, log=log, limit_s=LIMIT_S) as engine:
        length = accepted(backend, engine)
    ours = accepted_by_ours(speculation)
    assert ours > 2
    assert length == pytest.approx(ours, rel=NEAR)


def test_the_exported_draft_model(tmp_path: Path) -> None:
    folder = tmp_path / "draft"
    export_draft("smollm2-135m-draft", folder)
    check(Speculation("draft_model", k=K, draft=str(folder)), tmp_path / "log")


def test_the_exported_head(tmp_path: Path) -> None:
    """In float8: vLLM computes with it in the target's type."""
    folder = tmp_path / "head"
    export_draft("smollm2-135m-eagle", folder, "float8")
    check(Speculation("eagle", k=K, draft=str(folder)), tmp_path / "log")
