from __future__ import annotations

import json
from pathlib import Path

import pytest

from outdraft.errors import CorruptFileError
from outdraft.watch.events import Events, Told
from outdraft.watch.findings import Notice


def notice(text: str) -> Notice:
    return Notice(1.5, "alarm", "a", text, {"kind": "kv_squeeze"})


def test_events_have_numbers_that_go_on(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    events = Events(path)
    assert [events.append(notice(f"{n}")).number for n in range(3)] == [1, 2, 3]
    events.close()
    path.write_bytes(path.read_bytes() + b'{"number": 4, "at"')  # torn by a power failure
    again = Events(path)
    assert again.number == 3
    assert again.after(1) == (Told(2, notice("1")), Told(3, notice("2")))
    again.append(notice("3"))
    again.close()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["number"] for line in lines] == [1, 2, 3, 4]
    assert lines[0] == {
        "number": 1,
        "at": 1.5,
        "kind": "alarm",
        "replica": "a",
        "text": "0",
        "data": {"kind": "kv_squeeze"},
    }


def test_a_full_file_is_put_aside_once(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    events = Events(path, max_bytes=1000)
    for n in range(100):
        events.append(notice(f"{n}"))
    events.close()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["events.jsonl", "events.jsonl.1"]
    assert all(file.stat().st_size <= 1000 for file in tmp_path.iterdir())
    assert Events(path).number == 100
    path.unlink()  # killed between the two: what was put aside still says where to go on
    assert 80 < Events(path).number < 100


def test_without_a_file_they_are_remembered() -> None:
    events = Events(None, number=7)
    events.append(notice("x"))
    assert [event.number for event in events.recent] == [8]


def test_another_file_is_not_taken_for_events(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"a": 1}\n')
    with pytest.raises(CorruptFileError, match="no events"):
        Events(path)
