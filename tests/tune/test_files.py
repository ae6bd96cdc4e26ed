from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from outdraft.speculation import OFF
from outdraft.testing.sample_results import sample_results
from outdraft.tune.files import recommended, write_results
from outdraft.tune.results import Results


def decided(decision: str) -> Results:
    results = sample_results()
    loads = tuple(
        replace(each, verdict={**(each.verdict or {}), "decision": decision})
        for each in results.loads
    )
    return replace(results, loads=loads)


@pytest.mark.parametrize("decision", ["DON'T SHIP", "INCONCLUSIVE"])
def test_what_is_not_to_be_shipped_is_in_no_file(tmp_path: Path, decision: str) -> None:
    results = decided(decision)
    assert recommended(results) == OFF
    assert write_results(results, tmp_path)[0] == "results.json"
    for name in ("vllm.sh", "vllm.json", "outdraft.toml"):
        text = (tmp_path / name).read_text()
        assert decision in text
        assert "num_speculative_tokens" not in text
        assert "speculative_config" not in text


def test_each_file_says_what_was_found_and_where(tmp_path: Path) -> None:
    results = decided("SHIP")
    (tmp_path / "sglang.sh").write_text("of an earlier run")
    assert "sglang.sh" not in write_results(results, tmp_path), "it has no int8 schedule"
    assert not (tmp_path / "sglang.sh").exists()
    load = results.main
    assert load is not None
    said = f"outdraft tune, on the {results.backend} backend at {load.name}: {load.best}: SHIP"
    assert f"# {said}\n" in (tmp_path / "vllm.sh").read_text()
    assert json.loads((tmp_path / "vllm.json").read_text())["notes"][0] == said
