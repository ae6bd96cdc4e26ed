from __future__ import annotations

import json
from pathlib import Path

import pytest

from outdraft.errors import OptionError, OutdraftError
from outdraft.measure.files import read_trial
from outdraft.records import Trial
from outdraft.whole_file import write_json

from .made import accepted, done, failed

TRIAL = Trial(
    "server",
    "http://here",
    {"concurrency": 4},
    (done(0, acceptance=accepted(2, 8, 6, (2, 2))), failed(1)),
    "2026-01-01T00:00:00+00:00",
    problems=("one failed",),
)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "new" / "run.json"
    write_json(path, TRIAL.to_json())
    assert read_trial(path) == TRIAL
    assert [each.name for each in path.parent.iterdir()] == ["run.json"]


def test_whole_or_not_at_all(tmp_path: Path) -> None:
    """What cannot be written leaves the old file as it was, and nothing beside it."""
    path = tmp_path / "run.json"
    write_json(path, TRIAL.to_json())
    with pytest.raises(TypeError):
        write_json(path, {"first": 1, "then": object()})
    assert read_trial(path) == TRIAL
    assert [each.name for each in tmp_path.iterdir()] == ["run.json"]


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "file" / "run.json", tmp_path / "folder", Path("/proc/run.json")):
        with pytest.raises(OutdraftError, match=f"cannot write {path}: ") as error:
            write_json(path, {})
        assert "\n" not in str(error.value)
    assert {each.name for each in tmp_path.iterdir()} == {"file", "folder"}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"schema": 2, "records": []}', "schema 2, this version reads 1"),
        ("{}", "schema None"),
        ('{"schema": 1}', "records"),
        ('{"schema": 1, "records": [], "verdict": {}}', "verdict"),
        ('{"schema": 1, "records": [{"prompt": 1}]}', "prompt"),
        ("[1]", "no saved run"),
        ("{", "no saved run"),
        ("", "no saved run"),
    ],
)
def test_what_is_no_saved_run(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "run.json"
    path.write_text(content)
    with pytest.raises(OptionError, match="make one with bench --out") as error:
        read_trial(path)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_bytes_that_are_no_text_and_no_file(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(OptionError, match="is no saved run"):
        read_trial(path)
    with pytest.raises(OptionError, match=r"cannot read .*: No such file"):
        read_trial(tmp_path / "nothing.json")


def test_a_run_that_another_version_added_to(tmp_path: Path) -> None:
    """What one does not know may change what the rest means: it is refused, not ignored."""
    data = {**TRIAL.to_json(), "new": 1}
    path = tmp_path / "run.json"
    path.write_text(json.dumps(data, default=list))
    with pytest.raises(OptionError, match="new"):
        read_trial(path)
