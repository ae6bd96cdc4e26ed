"""A watch of real llama.cpp says what bench measured in the same seconds, and makes up nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from outdraft.backends.backend import Serving
from outdraft.backends.llamacpp import installation as llamacpp_installation
from outdraft.backends.lookup import backend_named
from outdraft.backends.process import start
from outdraft.speculation import Speculation
from outdraft.testing.tiny_models import tiny_gguf
from tests.engines.places import llama_server
from tests.engines.watched import Both, check_acceptance, check_rates, watch_and_bench

pytestmark = pytest.mark.engines

LENGTHS = (1, 4, 6, 9, 12, 16, 24, 32) * 5


@pytest.fixture(autouse=True, scope="module")
def _here() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(llamacpp_installation.VARIABLE, str(llama_server()))
        yield


def watched(target: str, draft: str, folder: Path, apart_s: float, interval: str) -> Both:
    serving = Serving(target, served_name="small", max_model_len=1024, max_num_seqs=2, threads=1)
    speculation = Speculation("draft_model", k=5, draft=draft)
    backend = backend_named("llamacpp")
    with start(backend, serving, speculation, log=folder / "engine.txt") as engine:
        return watch_and_bench(engine.url, folder, LENGTHS, apart_s=apart_s, interval=interval)


def check(both: Both) -> None:
    check_acceptance(both)
    check_rates(both)
    window = both.window
    prompts = sum(each.prompt_tokens or 0 for each in both.records)
    cached = sum(each.cached_tokens or 0 for each in both.records)
    assert window["prefix_hit_rate"] == pytest.approx(cached / prompts)
    assert window["times"] == {}, "it has no histograms"
    unknown = ("num_requests", "requests_per_s", "tokens_per_round", "kv_usage", "preemptions")
    assert {name: window[name] for name in unknown} == dict.fromkeys(unknown)


def test_a_tiny_model(tmp_path: Path) -> None:
    """Its draft has the same weights in fewer bits, and is often right."""
    target, draft = (
        tiny_gguf(tmp_path / f"{quant}.gguf", quant=quant, context=2048)
        for quant in ("Q8_0", "Q4_0")
    )
    check(watched(str(target), str(draft), tmp_path, apart_s=0.05, interval="200ms"))


@pytest.mark.slow
def test_the_real_model_with_the_shipped_draft(tmp_path: Path) -> None:
    both = watched("smollm2-135m", "smollm2-135m-draft", tmp_path, apart_s=1.2, interval="1s")
    check(both)
    # It divides by all tokens, first ones too, as llama.cpp itself does.
    per_token = both.decode_s / both.num_tokens
    print(f"seconds per token: watch {both.window['seconds_per_token']:.4f}, bench {per_token:.4f}")
    assert both.window["seconds_per_token"] == pytest.approx(per_token, rel=0.05)
