"""Several client processes. Each takes a second to start: few tests, each about much."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from outdraft.errors import OptionError, OutdraftError
from outdraft.loadgen import fleet, process
from outdraft.loadgen.endpoint import Endpoint
from outdraft.loadgen.fleet import run_load
from outdraft.loadgen.load import ClientLoad
from outdraft.loadgen.quality import assess_load
from outdraft.records import Record, RecordJournal, read_record_journal
from outdraft.testing.fake_script import Script
from outdraft.testing.fake_server import FakeServer, fake_server

from .plans import closed, every

QUICK = Script(ttft_s=0.005, tpot_s=0.001)


def test_one_process_is_this_one() -> None:
    with fake_server(QUICK) as url:
        run = run_load(Endpoint(url), closed(6), concurrency=2)
    assert [record.index for record in run.records] == list(range(6))
    assert all(record.ok for record in run.records)
    assert len(run.pulses) == 1


def test_several_start_together_and_their_records_come_in_order() -> None:
    seen: list[Record] = []
    with FakeServer(QUICK, refused_fields=("ignore_eos",)) as server:
        run = run_load(Endpoint(server.url), every(0.02, 30), processes=2, sink=seen.append)
    assert [record.index for record in run.records] == list(range(30))
    assert all(record.ok for record in run.records)
    assert {record.index for record in seen} == set(range(30))
    assert [record.scheduled_ns - run.start_ns for record in run.records] == [
        number * 20_000_000 for number in range(30)
    ]
    assert len(run.pulses) == 2
    assert run.refused_fields == ("ignore_eos",)
    assert run.problems == ()
    assert server.metrics.num_requests == 30


def test_fillers_of_several_processes_are_not_missed() -> None:
    spare = [replace(each, index=100 + each.index, is_filler=True) for each in closed(40)]
    with FakeServer(Script(ttft_s=0.03, tpot_s=0)) as server:
        run = run_load(Endpoint(server.url), [*closed(12), *spare], concurrency=4, processes=2)
    assert [record.index for record in run.records] == list(range(12))
    assert run.num_fillers == server.metrics.num_requests - 12 > 0
    assert run.num_planned == 12
    assert not run.is_stopped


def test_a_process_that_is_killed_is_reported(tmp_path: Path) -> None:
    """Everything that was answered is on disk, everything else is an error."""
    killed: list[int] = []

    def kill_one(record: Record) -> None:
        journal.add(record)
        if not killed:
            victim = next(
                each for each in fleet.multiprocessing.active_children() if each.name.endswith("-1")
            )
            assert victim.pid is not None
            killed.append(victim.pid)
            os.kill(victim.pid, signal.SIGKILL)

    path = tmp_path / "run.jsonl"
    with RecordJournal(path) as journal, fake_server(QUICK) as url:
        run = run_load(Endpoint(url), every(0.01, 100), processes=2, sink=kill_one)
    assert [record.index for record in run.records] == list(range(100))
    lost = [record for record in run.records if record.error == "client process died: -9"]
    assert lost
    assert all(record.index % 2 == 1 for record in lost)
    assert all(record.ok for record in run.records if record.index % 2 == 0)
    quality = assess_load(run)
    assert not quality.is_valid
    assert "client process 1 died (exit code -9)" in " ".join(quality.problems)
    assert {record.index for record in read_record_journal(path)} == set(range(100))


def test_the_sink_may_fail() -> None:
    def full(record: Record) -> None:
        raise OutdraftError("cannot write the journal")

    with fake_server(QUICK) as url, pytest.raises(OutdraftError, match="cannot write the journal"):
        run_load(Endpoint(url), closed(200), concurrency=2, processes=2, sink=full)
    assert fleet.multiprocessing.active_children() == []


INTERRUPTED = """
import sys
from outdraft.loadgen.endpoint import Endpoint
from outdraft.loadgen.fleet import run_load
from outdraft.loadgen.quality import assess_load
from tests.loadgen.plans import closed

if __name__ == "__main__":
    def told(record):
        print("record", flush=True)
    run = run_load(
        Endpoint(sys.argv[1]), closed(5000), concurrency=2, processes=int(sys.argv[2]), sink=told
    )
    print("END", len(run.records), assess_load(run).problems[0], flush=True)
"""


@pytest.mark.parametrize("processes", [1, 2])
def test_control_c_gives_what_there_is(processes: int, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(INTERRUPTED)
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{root / 'src'}:{root}"}
    with (
        fake_server(Script(ttft_s=0.01, tpot_s=0)) as url,
        subprocess.Popen(
            [sys.executable, str(script), url, str(processes)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,  # so that all of its processes get the signal, as from a shell
        ) as child,
    ):
        assert child.stdout is not None
        for _ in range(5):
            assert child.stdout.readline() == "record\n"
        os.killpg(child.pid, signal.SIGINT)
        out, err = child.communicate(timeout=30)
    assert err == ""
    last = out.splitlines()[-1]
    assert last.startswith("END ")
    assert "of 5000 requests" in last


def test_an_orphan_ends() -> None:
    """A client process whose parent is gone does not go on sending."""
    with FakeServer(Script(ttft_s=0.01, tpot_s=0)) as server:
        ours, theirs = fleet.multiprocessing.Pipe()
        whole = ClientLoad(Endpoint(server.url), closed(5000), concurrency=2, max_open=10)
        thread = threading.Thread(target=process._serve, args=(theirs, whole))
        thread.start()
        assert ours.recv() == "ready"
        ours.send("clock")
        ours.recv()
        ours.send(time.perf_counter_ns())
        ours.recv()
        ours.close()
        thread.join(10)
        assert not thread.is_alive()
        theirs.close()


def test_clocks_that_do_not_agree_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class OtherClock:
        def poll(self, timeout: float) -> bool:
            return True

        def recv(self) -> int:
            return 5

        def send(self, message: object) -> None: ...

    member = fleet._Member(1, None, None, OtherClock())  # type: ignore[arg-type]
    with pytest.raises(OutdraftError, match=r"the clock of client process 1 is -.* s off ours"):
        fleet._check_clock(member)


def test_how_a_load_is_dealt_out() -> None:
    whole = ClientLoad(Endpoint("http://x"), closed(7), concurrency=5, max_open=9)
    parts = whole.split(3)
    assert [[each.index for each in part.requests] for part in parts] == [[0, 3, 6], [1, 4], [2, 5]]
    assert [part.concurrency for part in parts] == [2, 2, 1]
    assert [part.max_open for part in parts] == [3, 3, 3]
    with pytest.raises(OptionError, match="processes must be at least 1, got 0"):
        run_load(Endpoint("http://x"), closed(1), concurrency=1, processes=0)
