"""Runs of version 0.1.0 on planted engines: their files are read, and mean what they meant."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from outdraft.tune.journal import Journal
from outdraft.tune.results import results_from_json

FILES = Path(__file__).parent / "version_0_1_0"
NAMES = ("one", "budget")


def read(name: str) -> str:
    return gzip.decompress((FILES / f"{name}.gz").read_bytes()).decode()


def without_added(now: Any, earlier: Any, added: list[Any]) -> Any:
    """Without the fields that came later; their values go to `added`."""
    if isinstance(now, dict) and isinstance(earlier, dict):
        added += [value for key, value in now.items() if key not in earlier]
        return {key: without_added(now[key], earlier[key], added) for key in now if key in earlier}
    if isinstance(now, list) and isinstance(earlier, list) and len(now) == len(earlier):
        return [without_added(*both, added) for both in zip(now, earlier, strict=True)]
    return now


@pytest.mark.parametrize("name", NAMES)
def test_earlier_blocks_are_read(name: str, tmp_path: Path) -> None:
    (tmp_path / "journal.jsonl").write_text(read(f"{name}-journal.jsonl"))
    results = results_from_json(json.loads(read(f"{name}-results.json")))
    with Journal(tmp_path / "journal.jsonl", {"seed": 0}) as journal:
        assert journal.num_requests == results.num_requests
        assert journal.elapsed_s() == pytest.approx(results.duration_s)
        assert journal.is_resumed


@pytest.mark.parametrize("name", NAMES)
def test_earlier_results_are_read(name: str) -> None:
    earlier = json.loads(read(f"{name}-results.json"))
    again = json.loads(json.dumps(results_from_json(earlier).to_json()))
    added: list[Any] = []
    assert without_added(again, earlier, added) == earlier
    assert not any(added), "what was not known then is unknown"
