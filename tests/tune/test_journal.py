from __future__ import annotations

from pathlib import Path

import pytest

from outdraft.errors import CorruptFileError, OptionError
from outdraft.tune.journal import Failure, Journal

HEADER = {"seed": 0}
FAILURE = Failure("concurrency 1", "ngram k=2", "died", 2.0)


def test_two_runs_at_once_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal(path, HEADER) as first:
        with pytest.raises(OptionError, match="another run is at work in"):
            Journal(path, HEADER)
        first.add(FAILURE)
    with Journal(path, HEADER) as again:
        assert again.failures == {("concurrency 1", "ngram k=2"): FAILURE}


def test_a_run_started_when_its_journal_did(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal(path, HEADER) as journal:
        began = journal.started_at
    text = path.read_text().replace(began, "2020-02-02T02:02:02+00:00")
    assert began
    assert began not in text
    path.write_text(text)
    with Journal(path, HEADER) as journal:
        assert journal.started_at == "2020-02-02T02:02:02+00:00"


def test_a_torn_line_goes_and_a_broken_one_is_told(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal(path, HEADER) as journal:
        journal.add(FAILURE)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"failure": {"load"')
    with Journal(path, HEADER) as journal:
        assert journal.elapsed_s() == 2.0
    assert path.read_bytes() == whole
    path.write_bytes(whole + b"{}\n")
    with pytest.raises(CorruptFileError, match="line 3 cannot be read"):
        Journal(path, HEADER)
