"""Real llama.cpp with the draft model that ships: it loads the file, and accepts its drafts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from outdraft.backends.backend import Serving
from outdraft.backends.llamacpp import installation as llamacpp_installation
from outdraft.backends.lookup import backend_named
from outdraft.backends.process import start
from outdraft.speculation import Speculation
from tests.engines.acceptance import NEAR, accepted, accepted_by_ours
from tests.engines.places import llama_server

pytestmark = pytest.mark.engines


@pytest.fixture(autouse=True, scope="module")
def _here() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(llamacpp_installation.VARIABLE, str(llama_server()))
        yield


@pytest.mark.slow
def test_the_shipped_draft_model(tmp_path: Path) -> None:
    serving = Serving(
        "smollm2-135m", served_name="smollm2", max_model_len=1024, max_num_seqs=2, threads=1
    )
    speculation = Speculation("draft_model", k=5, draft="smollm2-135m-draft")
    backend = backend_named("llamacpp")
    with start(backend, serving, speculation, log=tmp_path / "log") as engine:
        length = accepted(backend, engine)
    ours = accepted_by_ours(speculation)
    assert ours > 2
    assert length == pytest.approx(ours, rel=NEAR)
