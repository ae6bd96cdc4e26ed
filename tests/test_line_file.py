from __future__ import annotations

import json
from pathlib import Path

import pytest

from outdraft.errors import OutdraftError
from outdraft.line_file import LineFile, whole_lines


def test_lines_grow_and_a_torn_end_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "new" / "lines.jsonl"
    file = LineFile(path)
    assert file.lines() == []
    file.append({"a": 1})
    file.append({"b": 2}, is_synced=True)
    file.close()
    path.write_bytes(path.read_bytes() + b'{"c": ')
    again = LineFile(path)
    assert [json.loads(line) for line in again.lines()] == [{"a": 1}, {"b": 2}]
    again.append({"d": 4})
    again.close()
    assert [json.loads(line) for line in path.read_bytes().splitlines()] == [
        {"a": 1},
        {"b": 2},
        {"d": 4},
    ]


def test_what_cannot_be_written_is_said_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutdraftError, match=r"cannot write the journal .*: Not a directory|exists"):
        LineFile(tmp_path / "file" / "lines.jsonl")


def test_only_what_ends_in_a_line_feed_is_a_line() -> None:
    assert whole_lines(b"") == []
    assert whole_lines(b"torn") == []
    assert whole_lines(b"one\ntwo\ntorn") == [b"one", b"two"]
