from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from outdraft.acceptance import Acceptance
from outdraft.errors import CorruptFileError, OutdraftError
from outdraft.records import Record, RecordJournal, read_record_journal

RECORD = Record(
    prompt_id="p1",
    category="code",
    temperature=0.8,
    arm="ngram-5",
    block=2,
    index=7,
    scheduled_ns=10,
    sent_ns=11,
    first_ns=20,
    last_ns=30,
    chunk_ns=(20, 25, 30),
    prompt_tokens=4,
    completion_tokens=9,
    finish_reason="stop",
    acceptance=Acceptance(3, 9, 6, 0, [3, 2, 1], [3, 3, 3]),
    text="zwölf\nLinien ☃",
)
FAILED = Record("p2", "chat", 0.0, "off", 0, 1, scheduled_ns=5, error="refused", is_warmup=True)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "new" / "run.jsonl"
    with RecordJournal(path) as journal:
        journal.add(RECORD)
        assert read_record_journal(path) == [RECORD]  # while it is still being written
        journal.add(FAILED)
    assert read_record_journal(path) == [RECORD, FAILED]
    assert len(path.read_text().splitlines()) == 3


def test_every_cut_leaves_the_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with RecordJournal(path) as journal:
        for index in range(3):
            journal.add(replace(RECORD, index=index))
    data = path.read_bytes()
    for end in range(0, len(data), 7):
        path.write_bytes(data[:end])
        whole = max(0, data[:end].count(b"\n") - 1)
        assert [each.index for each in read_record_journal(path)] == list(range(whole))


def test_opened_again_it_goes_on_behind_the_last_whole_line(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with RecordJournal(path) as journal:
        journal.add(RECORD)
    with path.open("ab") as file:
        file.write(b'{"prompt_id": "to')
    with RecordJournal(path) as journal:
        journal.add(FAILED)
    assert read_record_journal(path) == [RECORD, FAILED]


def test_a_torn_first_line(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(b'{"sch')
    assert read_record_journal(path) == []
    with RecordJournal(path) as journal:
        journal.add(RECORD)
    assert read_record_journal(path) == [RECORD]


def test_a_line_that_is_no_record_is_named(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    RecordJournal(path).close()
    for wrong in (b"{}", b"[]", b"not json", b'{"prompt_id": 1, "nonsense": 2}'):
        path.write_bytes(b'{"schema": 1}\n' + wrong + b"\n")
        with pytest.raises(CorruptFileError, match="line 2 cannot be read"):
            read_record_journal(path)


def test_another_file_is_not_touched(tmp_path: Path) -> None:
    for content in (b"hello\nworld\n", b'{"schema": 99}\n', b"[1]\n"):
        path = tmp_path / "notes.txt"
        path.write_bytes(content)
        with pytest.raises(CorruptFileError, match="is no journal of schema 1"):
            RecordJournal(path)
        with pytest.raises(CorruptFileError, match="is no journal of schema 1"):
            read_record_journal(path)
        assert path.read_bytes() == content


def test_no_such_place(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutdraftError, match="cannot write the journal"):
        RecordJournal(tmp_path / "file" / "run.jsonl")
    with pytest.raises(OutdraftError, match="cannot write the journal"):
        RecordJournal(tmp_path)
    with pytest.raises(OutdraftError, match=r"cannot read the journal .*No such file"):
        read_record_journal(tmp_path / "nothing.jsonl")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    with RecordJournal(tmp_path / "run.jsonl") as journal:
        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, journal.handle)
        os.close(full)
        with pytest.raises(OutdraftError, match=r"cannot write the journal .*: No space left"):
            journal.add(RECORD)


WRITER = """
import sys
from outdraft.records import RecordJournal
from outdraft.records import Record
journal = RecordJournal(sys.argv[1])
for index in range(10**9):
    journal.add(Record("p", "chat", 0.0, "off", 0, index, scheduled_ns=index, text="x" * 500))
    if index == 100:
        print("go", flush=True)
"""


def test_whole_lines_of_a_killed_writer_are_read(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    command = [sys.executable, "-c", WRITER, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        writer.send_signal(signal.SIGKILL)
        writer.wait()
    records = read_record_journal(path)
    assert len(records) > 100
    assert [record.index for record in records] == list(range(len(records)))
    whole, _, _ = path.read_bytes().rpartition(b"\n")  # a kill may cut the line being written
    assert json.loads(whole.splitlines()[-1])["index"] == len(records) - 1
