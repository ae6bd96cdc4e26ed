from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from outdraft.errors import OptionError
from outdraft.workload.trace import read_trace


def written(folder: Path, *entries: Any, name: str = "trace.jsonl") -> Path:
    path = folder / name
    path.write_text("\n".join(each if isinstance(each, str) else json.dumps(each)
                              for each in entries))  # fmt: skip
    return path


def test_times_alone_from_the_first_on(tmp_path: Path) -> None:
    path = written(tmp_path, {"timestamp": 12.5}, {"ts": 10}, "", {"Arrival_Time": "11"})
    trace = read_trace(path)
    assert trace.offsets_ns == (0, 10**9, 2_500_000_000)
    assert trace.prompts is None
    assert read_trace(path, speed=2, at_most=2).offsets_ns == (0, 500_000_000)


def test_prompts_come_at_their_own_times(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        {"timestamp": "2026-05-01T10:00:03Z", "prompt": "last"},
        {"timestamp": "2026-05-01T10:00:00Z", "prompt": "first"},
        {"timestamp": "2026-05-01 10:00:01", "prompt": "second"},
    )
    trace = read_trace(path)
    assert trace.offsets_ns == (0, 10**9, 3 * 10**9)
    assert trace.prompts is not None
    said = [each.messages[0].content for each in trace.prompts]
    assert said == ["first", "second", "last"]


def test_a_csv_file(tmp_path: Path) -> None:
    lines = ("TIMESTAMP,ContextTokens,GeneratedTokens", "2023-11-16 18:01:51.5,4808,10",
             "2023-11-16 18:01:50.0,110,27")  # fmt: skip
    assert read_trace(written(tmp_path, *lines, name="t.csv")).offsets_ns == (0, 1_500_000_000)


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ((), "has no entries"),
        (({"timestamp": 1}, {"prompt": "x"}), "line 2: no timestamp; one of timestamp, ts"),
        (({"timestamp": "noon"},), "line 1: 'noon' is no time"),
        (({"timestamp": float("nan")},), "is no time"),
        (("[1]",), "line 1: not an object"),
        (("{",), "line 1: not JSON"),
    ],
)
def test_what_is_no_trace(tmp_path: Path, entries: tuple[Any, ...], said: str) -> None:
    with pytest.raises(OptionError) as caught:
        read_trace(written(tmp_path, *entries))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="cannot read"):
        read_trace(tmp_path / "none.jsonl")
