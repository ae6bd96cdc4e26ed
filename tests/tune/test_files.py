from __future__ import annotations

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
    written, _ = write_results(results, tmp_path)
    assert written[0] == "results.json"
    for name in ("vllm.sh", "vllm.json", "outdraft.toml"):
        text = (tmp_path / name).read_text()
        assert decision in text
        assert "num_speculative_tokens" not in text
        assert "speculative_config" not in text


def test_each_file_says_what_was_found_and_where(tmp_path: Path) -> None:
    results = decided("SHIP")
    (tmp_path / "sglang.sh").write_text("of an earlier run")
    written, left_out = write_results(results, tmp_path)
    assert "sglang.sh" not in written, "it has no int8 schedule"
    assert "SGLang" in left_out["sglang.sh"]
    assert not (tmp_path / "sglang.sh").exists()
    assert "GGUF" in left_out["vllm.sh"], "the shipped draft is one"
    assert "concurrency 4: SHIP" in (tmp_path / "outdraft.toml").read_text()
