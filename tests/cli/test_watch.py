"""`outdraft watch`: against a real server of ours with a tiny model, under the load of `bench`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from outdraft.acceptance import Acceptance
from outdraft.cli.main import main
from outdraft.measure.saved import read_trial
from outdraft.observe import RemoteServer
from outdraft.observe.histogram import Histogram
from outdraft.records import Record
from outdraft.stats.percentiles import percentile
from outdraft.testing.fake_script import Script
from outdraft.testing.fake_server import fake_server, refusing_url
from outdraft.testing.tiny_models import tiny_model
from tests.cli.test_serve import Running, running
from tests.measure.patient import be_patient

OUTDRAFT = (sys.executable, "-m", "outdraft")
PATIENCE_S = 60.0
HISTOGRAMS = {
    "ttft": "vllm:time_to_first_token_seconds",
    "tpot": "vllm:request_time_per_output_token_seconds",
    "e2e": "vllm:e2e_request_latency_seconds",
}
HTTP_S = 0.01  # what a client sees and the server does not: more than all the work of a tiny model
# One at a time: then nothing but what is recorded is sent.
LOAD = ("--requests", "24", "--concurrency", "1", "--max-tokens", "24", "--warmup", "2",
        "--category", "code_edit")  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    target = tiny_model(tmp_path_factory.mktemp("models") / "target", "llama", context=4096)
    with running("--target", str(target), "--method", "ngram", "--k", "4") as started:
        yield started


@contextmanager
def watching(*words: str, **options: Any) -> Iterator[subprocess.Popen[str]]:
    command = [*OUTDRAFT, "watch", *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **{**pipes, **options}) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def bucket_distance(histogram: Histogram, a: float, b: float) -> int:
    """How many buckets lie between two values."""
    places = [sum(bound < value for bound in histogram.bounds) for value in (a, b)]
    return abs(places[0] - places[1])


@pytest.mark.slow
def test_the_same_figures_as_bench(
    server: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Acceptance to the last digit; percentiles within a bucket of the server's histograms."""
    be_patient(monkeypatch)
    out = tmp_path / "run.json"
    with watching(server.url, "--interval", "500ms", "--for", "8s", "--json") as watch:
        assert watch.stderr is not None
        assert watch.stdout is not None
        first = watch.stderr.readline()  # so that the first look was before the load
        assert "1 replica" in first
        assert main(["bench", server.url, *LOAD, "--out", str(out), "--json"]) == 0
        text, said = watch.communicate(timeout=PATIENCE_S)
    assert "Traceback" not in said
    told = json.loads(text)
    [replica] = told["replicas"]
    assert (replica["state"], replica["engine"], replica["speculates"]) == ("up", "outdraft", True)
    advice = told["fleet"]["advice"]
    assert watch.returncode == (0 if advice and advice["action"] == "KEEP" else 3)
    assert (replica["benefit"] or {"source": "costs"})["source"] == "costs", "of its own steps"
    records = [record for record in read_trial(out).records if record.ok]
    window = replica["window"]
    assert window["acceptance_rate"] == Acceptance.total(each.acceptance for each in records).rate
    assert window["num_tokens"] == sum(record.completion_tokens or 0 for record in records)
    assert window["num_requests"] == len(records)
    page = RemoteServer(server.url).metrics()
    for name, metric in HISTOGRAMS.items():
        histogram = Histogram.read(page, metric)
        assert histogram is not None
        times_s = [getattr(record, f"{name}_ns") / 1e9 for record in _with(records, f"{name}_ns")]
        for key, q in (("p50", 0.5), ("p90", 0.9)):
            mine, theirs = window["times"][name][key], percentile(times_s, q)
            is_near = bucket_distance(histogram, mine, theirs) <= 1
            assert is_near or 0 < theirs - mine < HTTP_S, (name, key, mine, theirs)


def _with(records: list[Record], field: str) -> list[Record]:
    return [record for record in records if getattr(record, field) is not None]


def test_a_plain_server_beside_it_is_the_control() -> None:
    """Speculation that slows down is told by the exit code, and by the words."""
    slow = Script(ttft_s=0.01, tpot_s=0.004, k=4, acceptance=0.1, speedup=0.5)
    with fake_server(slow) as url:
        code = main(["watch", url, "--interval", "200ms", "--for", "1s", "--json"])
    assert code == 3


def test_lines_where_there_is_no_terminal(server: Running) -> None:
    with watching(server.url, "--interval", "500ms", "--for", "2s") as watch:
        text, said = watch.communicate(timeout=PATIENCE_S)
    assert watch.returncode == 3
    assert said == ""
    assert all("1 replica" in line or "replica ·" in line for line in text.splitlines())
    assert text.count("benefit unknown") >= 1


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_it_ends_cleanly(server: Running, tmp_path: Path, sent: signal.Signals, code: int) -> None:
    state = tmp_path / "state.json"
    words = (server.url, "--interval", "300ms", "--state", str(state), "--events",
             str(tmp_path / "events.jsonl"), "--listen", "127.0.0.1:0")  # fmt: skip
    with watching(*words) as watch:
        assert watch.stdout is not None
        watch.stdout.readline()
        time.sleep(0.5)
        watch.send_signal(sent)
        _, said = watch.communicate(timeout=PATIENCE_S)
    assert watch.returncode == code
    assert "Traceback" not in said
    assert json.loads(state.read_text())


def test_the_page_and_the_metrics_are_served(server: Running) -> None:
    with watching(server.url, "--interval", "300ms", "--ui", "--listen", "127.0.0.1:0") as watch:
        assert watch.stderr is not None
        line = watch.stderr.readline()
        url = line.split()[-1]
        assert line.startswith("outdraft: page at http://127.0.0.1:")
        assert watch.stdout is not None
        watch.stdout.readline()  # it has looked
        page = RemoteServer(url).metrics()
        assert page["outdraft_watch_up"] == 2  # the replica, and the share of all
    assert watch.returncode in (-signal.SIGKILL, None)


def test_a_server_that_never_answers(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["watch", refusing_url(), "--interval", "200ms", "--for", "600ms", "--json"])
    caught = capsys.readouterr()
    assert code == 2
    assert caught.out == ""
    assert "no server answered" in caught.err.splitlines()[-1]


def test_boards(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", "--write-boards", str(tmp_path / "boards")]) == 0
    written = capsys.readouterr().out.splitlines()
    names = ("rules-watch.yml", "grafana-watch.json", "rules-vllm.yml", "grafana-vllm.json")
    assert written == [str(tmp_path / "boards" / name) for name in names]
    assert all(os.path.exists(path) for path in written)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "no server to watch; give a URL"),
        ("nowhere:port", "is no address of a server"),
        ("http://user:password@a:1 --for 1s", "--for 1s is shorter than"),
        ("http://a:1 --intreval 5s", "did you mean --interval?"),
    ],
)
def test_mistakes_are_one_line(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", *words.split()]) == 2
    caught = capsys.readouterr()
    assert caught.out == ""
    assert caught.err.count("\n") == 1
    assert said in caught.err
    assert "password" not in caught.err
