from __future__ import annotations

from dataclasses import replace
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


def test_a_journal_that_is_refused_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal(path, HEADER) as journal:
        journal.add(FAILURE)
    path.write_bytes(path.read_bytes() + b'{"failure": {"torn')
    before = path.read_bytes()
    for header in ({"seed": 1}, {**HEADER, "CPU": "another"}):
        with pytest.raises(OptionError):
            Journal(path, header)
        assert path.read_bytes() == before


def test_what_a_journal_does_not_say(tmp_path: Path) -> None:
    """An earlier version said less; a draft that could not be started then has a digest now."""
    path = tmp_path / "journal.jsonl"
    Journal(path, HEADER).close()
    draft = "digest of the files of draft ./new"
    for words in ("number of cores", "stop_at_eos", draft):
        with pytest.raises(OptionError) as caught:
            Journal(path, {**HEADER, words: False})
        assert str(caught.value) == (
            f"{tmp_path} holds a run that does not say its {words}; give another --out, or remove "
            "the folder to measure anew"
        )
    with pytest.raises(OptionError, match=r"does not say its a, b, c, …; give"):
        Journal(path, {**HEADER, "a": 1, "b": 2, "c": 3, "d": 4})
    with pytest.raises(OptionError, match=r"another seed \(0, now 1\)"):
        Journal(path, {"number of cores": 2, "seed": 1})  # what differs says more


@pytest.mark.parametrize("text", ["[]", "7", "null", '"text"', "{"])
def test_another_file_is_no_journal(tmp_path: Path, text: str) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text(f"{text}\n")
    with pytest.raises(CorruptFileError, match="is no journal; give another --out"):
        Journal(path, HEADER)


def test_failures_that_are_retried_stay_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    again = replace(FAILURE, reason="died again", duration_s=3.0)
    with Journal(path, HEADER) as journal:
        journal.add(FAILURE)
        before = path.read_bytes()
        journal.retry_failed()
        journal.retry_failed()
        assert path.read_bytes().startswith(before)
        assert path.read_bytes().count(b"\n") == 3, "nothing is left to retry the second time"
        assert journal.failures == {}
        assert journal.elapsed_s() == 0.0
    with Journal(path, HEADER) as journal:  # killed before the arm was measured again
        assert journal.failures == {}
        journal.add(again)
    with Journal(path, HEADER) as journal:
        assert journal.failures == {("concurrency 1", "ngram k=2"): again}
