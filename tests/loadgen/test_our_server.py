"""The client against our own server: what one writes, the other reads."""

from __future__ import annotations

from pathlib import Path

from outdraft import Speculation, load_engine
from outdraft.loadgen.endpoint import Endpoint
from outdraft.loadgen.fleet import run_load
from outdraft.loadgen.load import LoadRun
from outdraft.loadgen.quality import assess_load
from outdraft.testing.tiny_models import tiny_model
from tests.server.serving import serving

from .plans import closed


def measured(folder: Path, speculation: Speculation) -> LoadRun:
    engine = load_engine(str(folder), speculation, kv_cache_bytes=4 << 20)
    with serving(engine) as (url, _):
        return run_load(Endpoint(url), closed(4, max_tokens=24), concurrency=2)


def test_records_with_and_without_speculation(tmp_path: Path) -> None:
    folder = tiny_model(tmp_path / "tiny", "llama")
    on, off = measured(folder, Speculation("ngram", k=3)), measured(folder, Speculation("off"))
    for run in (on, off):
        assert [record.error for record in run.records] == [None] * 4
        assert [record.completion_tokens for record in run.records] == [24] * 4
        assert all(record.finish_reason == "length" for record in run.records)
        assert all((record.prompt_tokens or 0) > 0 for record in run.records)
        assert run.refused_fields == ("return_spec_tokens_details",)  # SGLang's name
        assert not any("refused" in each for each in assess_load(run).problems)
    assert [record.text for record in on.records] == [record.text for record in off.records]
    assert any(record.acceptance and record.acceptance.num_drafts for record in on.records)
    for record in off.records:
        assert record.acceptance is not None
        assert (record.acceptance.num_drafts, record.acceptance.rate) == (0, None)
