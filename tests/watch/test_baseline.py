from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from outdraft.errors import OptionError
from outdraft.tune.answer import recommended
from outdraft.tune.results import Results
from outdraft.watch.baseline import Baseline, read_baseline
from tests.report.sample_results import sample_results


def written(folder: Path, results: Results) -> Path:
    (folder / "results.json").write_text(json.dumps(results.to_json()))
    return folder


def test_none() -> None:
    assert read_baseline(None) == Baseline()


def test_costs_and_what_was_recommended(tmp_path: Path) -> None:
    results = sample_results()
    found = read_baseline(written(tmp_path, results))
    assert found.costs is not None
    assert found.costs.loads
    assert found.known is not None
    assert found.known.speculation == recommended(results)
    assert found.known.serving("vllm").target == results.target


def test_servers_are_configured_as_they_were_measured(tmp_path: Path) -> None:
    results = sample_results()
    given = {"engine_flags": "--gpu-memory-utilization 0.8", "dtype": "half", "max_num_seqs": 64}
    measured = replace(results, backend="vllm", settings={**results.settings, **given})
    known = read_baseline(written(tmp_path, measured)).known
    assert known is not None
    serving = known.serving("vllm")
    assert (serving.dtype, serving.extra) == ("half", ("--gpu-memory-utilization", "0.8"))
    other = known.serving("sglang")
    assert (other.dtype, other.extra, other.max_num_seqs) == (None, (), 64)


def test_a_folder_without_results(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="run `outdraft tune --out DIR` first"):
        read_baseline(tmp_path)


def test_results_that_say_nothing_of_costs(tmp_path: Path) -> None:
    nothing = replace(sample_results(), loads=())
    with pytest.raises(OptionError, match="no arm there from which costs follow"):
        read_baseline(written(tmp_path, nothing))
