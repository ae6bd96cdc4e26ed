"""`outdraft bench` against a fake server: what it prints, writes and answers."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from outdraft.cli.main import main
from outdraft.measure.saved import read_trial
from outdraft.records import read_record_journal
from outdraft.testing.fake_script import Script
from outdraft.testing.fake_server import FakeServer, fake_server, refusing_url
from tests.measure.patient import be_patient

from .drafts import trained_draft

OUTDRAFT = (sys.executable, "-m", "outdraft")
# First tokens late enough for a busy machine to be on time beside them.
SCRIPT = Script(ttft_s=0.2, tpot_s=0.004, k=4, acceptance={0.0: 0.8, 0.8: 0.4})
QUICK = Script(ttft_s=0.02, tpot_s=0.001)
SHORT = ("--requests", "12", "--concurrency", "12", "--max-tokens", "9", "--warmup", "2")


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs it in this process: the exit code, stdout and stderr."""

    def run(*words: str) -> tuple[int, str, str]:
        code = main(["bench", *words])
        caught = capsys.readouterr()
        return code, caught.out, caught.err

    return run


def test_a_table_and_a_file(tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    flags = ("--slo", "ttft=5s", "--temperature", "0:50%,0.8:50%", "--out", str(out))
    with fake_server(SCRIPT) as url:
        done = subprocess.run(
            [*OUTDRAFT, "bench", url, *SHORT, *flags],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == "", "no bar where there is no terminal"
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["P50", "P95", "P99"]
    assert [line.split()[0] for line in lines[1:4]] == ["TTFT", "TPOT", "e2e"]
    assert 200 <= float(lines[1].split()[2]) < 600
    for part in (
        "12 requests in ",
        ", 0 failed",
        "requests/s within the SLO",
        "acceptance rate 0.",
        "by position: ",
        "chat ",
        "by temperature: 0 0.",
        "0.7-1 0.",
        "KV cache in use at most",
        "0 preemptions",
    ):
        assert part in done.stdout
    assert lines[-1] == "server: vllm", "as its metrics are named"
    assert json.loads(out.read_text())["schema"] == 1
    trial = read_trial(out)
    assert [each.is_warmup for each in trial.records] == [True] * (2 + 12) + [False] * 12
    assert all(each.ok and each.text and each.acceptance for each in trial.records)
    assert trial.load["concurrency"] == 12
    assert trial.server_metrics["vllm:num_preemptions_total"] == 0
    assert [each.name for each in tmp_path.iterdir()] == ["run.json"], "the journal is gone"


def test_json_is_one_object_and_nothing_else(told: Any) -> None:
    with FakeServer(QUICK) as server:
        flags = ("--json", "--rate", "100", "--model", "mine")
        code, said, complaint = told(server.url, *SHORT, *flags)
    found = json.loads(said)
    assert said.count("\n") == 1
    assert complaint == ""
    assert found["valid"] is (code == 0)
    assert found["summary"]["num_requests"] == 12
    assert [each["q"] for each in found["summary"]["e2e"]] == [0.5, 0.95, 0.99]
    assert {body["model"] for body in server.bodies} == {"mine"}


def test_a_bar_where_there_is_a_terminal() -> None:
    """On stderr, so that the table alone goes into a file."""
    ours, theirs = pty.openpty()
    with fake_server(QUICK) as url:
        done = subprocess.run(
            [*OUTDRAFT, "bench", url, *SHORT],
            stdout=subprocess.PIPE,
            stderr=theirs,
            text=True,
            timeout=60,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
            check=False,
        )
    os.close(theirs)
    bar = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert "bench" in bar
    assert "/14" in bar
    assert "\x1b" not in done.stdout
    assert done.stdout.splitlines()[0].split() == ["P50", "P95", "P99"]


@pytest.mark.parametrize("is_trace", [False, True])
def test_prompts_that_the_draft_has_seen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], is_trace: bool
) -> None:
    """They are left out, of a trace with their times; output and file say how many."""
    *prompts, draft = trained_draft(tmp_path)
    flags = ["--replay" if is_trace else prompts[0], prompts[1], prompts[2], draft]
    flags += ["--stop-at-eos", "--max-tokens", "64", "--warmup", "0", "--json"]
    flags += [] if is_trace else ["--requests", "12"]
    with FakeServer(QUICK) as server:
        main(["bench", server.url, *flags, "--out", str(tmp_path / "run.json")])
    note = f"3 of 9 prompts were used to train {draft} and are left out"
    assert note in json.loads(capsys.readouterr().out)["problems"]
    trial = read_trial(tmp_path / "run.json")
    assert note in trial.problems
    assert (trial.load["draft"], trial.load["stop_at_eos"]) == (draft, True)
    texts = [body["messages"][0]["content"] for body in server.bodies]
    asked = {text.partition("] ")[2] if text.startswith("[spare-") else text for text in texts}
    assert asked == {f"question {number}" for number in range(3, 9)}
    counted = [each for each in trial.records if not each.is_warmup]
    assert (len(counted), len(trial.records)) == ((6, 6) if is_trace else (12, 12 + 4))
    assert not any("ignore_eos" in body for body in server.bodies)
    assert {each.finish_reason for each in counted} == {"stop"}


def test_a_trace_is_played_again(
    told: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    be_patient(monkeypatch)
    trace = tmp_path / "trace.jsonl"
    lines = [{"timestamp": 100 + 50 * n, "prompt": f"number {n}"} for n in (2, 0, 1)]
    trace.write_text("\n".join(map(json.dumps, lines)))
    out = tmp_path / "run.json"
    with FakeServer(QUICK) as server:
        flags = ("--replay", str(trace), "--replay-speed", "1000", "--warmup", "0")
        code, said, complaint = told(server.url, *flags, "--max-tokens", "3", "--out", str(out))
    assert code == 0, said + complaint
    asked = [body["messages"][0]["content"] for body in server.bodies]
    assert asked == ["number 0", "number 1", "number 2"]
    trial = read_trial(out)
    due = [each.scheduled_ns for each in trial.records]
    assert [each - due[0] for each in due] == [0, 50_000_000, 100_000_000]
    assert trial.load["replay"] == str(trace)


def test_what_a_run_left_is_put_aside(told: Any, tmp_path: Path) -> None:
    out, left = tmp_path / "run.json", tmp_path / "run.json.journal"
    left.write_text("from before")
    with fake_server(QUICK) as url:
        _, _, complaint = told(url, *SHORT, "--out", str(out))
    assert complaint == f"note: the records of an interrupted run are in {left}.1\n"
    assert (tmp_path / "run.json.journal.1").read_text() == "from before"
    assert len(read_trial(out).records) == 14 + 12


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        ("http_503", "http 503 × 4"),
        ("cut", "stream ended early × 4"),
        ("ends_early", "stream ended early × 4"),
        ("malformed", "malformed event × 4"),
        ("reset", "× 4"),
        ("error_event", "× 4"),
        ("no_usage", "no token counts × 4"),
    ],
)
def test_too_many_failures_are_counted_and_the_run_is_invalid(
    told: Any, tmp_path: Path, kind: str, named: str
) -> None:
    out = tmp_path / "run.json"
    with fake_server(QUICK, failures={kind: 3}) as url:
        alone = ("--warmup", "0", "--concurrency", "1")
        code, said, complaint = told(url, *SHORT, *alone, "--out", str(out))
    assert code == 1
    assert complaint == ""
    assert "12 requests in" in said
    assert ", 4 failed" in said
    assert "note: 4 of 12 requests failed (33.3%): " in said
    assert named in said
    assert said.splitlines()[-1].startswith("INVALID")
    trial = read_trial(out)
    assert len(trial.records) == 12
    assert not trial.is_valid


def test_a_few_failures_leave_it_valid_with_a_stated_rate(
    told: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    be_patient(monkeypatch)
    flags = ("--requests", "40", "--concurrency", "20", "--max-tokens", "2", "--warmup", "0")
    with fake_server(QUICK, failures={"http_500": 45}) as url:
        code, said, _ = told(url, *flags)
    assert "40 requests in" in said
    assert ", 1 failed" in said
    assert "note: 1 of 40 requests failed (2.5%): http 500 × 1" in said
    assert code == 0, said
    assert "INVALID" not in said


def test_a_server_that_dies_on_the_way(tmp_path: Path) -> None:
    """No traceback, all requests accounted for, and the file says what happened."""
    out = tmp_path / "run.json"
    with FakeServer(QUICK) as server:
        command = [*OUTDRAFT, "bench", server.url, "--requests", "300", "--concurrency", "1"]
        with subprocess.Popen(
            [*command, "--max-tokens", "2", "--out", str(out)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            _wait_for_records(tmp_path / "run.json.journal", 8)
            server.stop()
            said, complaint = process.communicate(timeout=60)
    assert process.returncode == 1
    assert complaint == ""
    assert "300 requests in" in said
    assert "refused × " in said
    assert "INVALID" in said
    assert len(read_trial(out).records) == 304


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
def test_records_so_far_survive(tmp_path: Path, sent: signal.Signals) -> None:
    out, journal = tmp_path / "run.json", tmp_path / "run.json.journal"
    with fake_server(QUICK) as url:
        command = [*OUTDRAFT, "bench", url, "--requests", "5000", "--out", str(out)]
        with subprocess.Popen(
            [*command, "--max-tokens", "2"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            _wait_for_records(journal, 12)
            process.send_signal(sent)
            said, complaint = process.communicate(timeout=60)
    if sent == signal.SIGKILL:
        assert not out.exists()
        records = read_record_journal(journal)
    else:
        assert process.returncode == 1
        assert complaint == ""
        assert "of 5004 requests" in said, "with four before them"
        assert not journal.exists()
        records = list(read_trial(out).records)
    assert 12 <= len(records) < 5000
    assert sum(each.ok for each in records) >= 8


def _wait_for_records(journal: Path, count: int) -> None:
    until = time.monotonic() + 30
    while not journal.exists() or journal.read_bytes().count(b"\n") < count + 1:
        assert time.monotonic() < until, "no records came"
        time.sleep(0.01)


def test_a_dead_server_is_one_line(told: Any, tmp_path: Path) -> None:
    code, said, complaint = told(refusing_url(), "--out", str(tmp_path / "run.json"))
    assert (code, said) == (2, "")
    assert complaint.startswith("outdraft: no server answers at http://127.0.0.1:")
    assert complaint.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (("--temperature", "0:60%,1:30%"), "the shares sum to 90 %"),
        (("--temperature", "warm"), "'warm' is not TEMPERATURE:SHARE%"),
        (("--slo", "ttft=fast"), "--slo 'ttft=fast'"),
        (("--requests", "0"), "--requests must be at least 1, got 0"),
        (("--requests", "many"), "'many'"),
        (("--warmup", "-1"), "--warmup must be at least 0, got -1"),
        (("--concurrency", "0"), "--concurrency must be at least 1, got 0"),
        (("--max-tokens", "0"), "--max-tokens must be at least 1, got 0"),
        (("--processes", "0"), "--processes must be at least 1, got 0"),
        (("--rate", "0"), "a rate must be greater than 0, got 0"),
        (("--rate", "1", "--burstiness", "0"), "burstiness must be greater than 0"),
        (("--prompts", "/no/such/file.jsonl"), "cannot read /no/such/file.jsonl"),
        (("--prompts", "random"), "--force-random"),
        (("--category", "poetry"), "unknown category 'poetry'"),
        (("--draft", "smollm2-135m-draf"), "(did you mean 'smollm2-135m-draft'?)"),
        (("--request", "5"), "--request"),
    ],
)
def test_options_that_cannot_be(told: Any, flags: tuple[str, ...], named: str) -> None:
    """Before any server is asked: there is none."""
    code, said, complaint = told("http://127.0.0.1:9", *flags)
    assert (code, said) == (2, "")
    assert complaint.startswith("outdraft: ")
    assert complaint.count("\n") == 1
    assert named in complaint


def test_what_is_no_url_or_cannot_be_written(told: Any, tmp_path: Path) -> None:
    assert "'localhost:8000' is no URL of a server" in told("localhost:8000")[2]
    (tmp_path / "file").write_text("")
    with fake_server(QUICK) as url:
        code, said, complaint = told(url, "--out", str(tmp_path / "file" / "run.json"))
    assert (code, said) == (2, "")
    assert "cannot write" in complaint
    assert complaint.count("\n") == 1


def test_random_by_force(told: Any) -> None:
    with FakeServer(QUICK) as server:
        _, said, _ = told(server.url, *SHORT, "--prompts", "random", "--force-random")
    assert "12 requests in" in said
    texts = [body["messages"][0]["content"] for body in server.bodies]
    assert sum(not text.startswith("[spare-") for text in texts) == 14
    assert sum(text.startswith("[spare-") for text in texts) >= 12


def test_what_is_not_counted_is_said(told: Any, tmp_path: Path) -> None:
    out, steady = tmp_path / "run.json", Script(ttft_s=0.02, tpot_s=0.01)
    flags = ("--requests", "48", "--concurrency", "16", "--max-tokens", "30", "--out", str(out))
    with fake_server(steady) as url:
        _, said, _ = told(url, *flags)
    assert "48 requests in " in said
    assert "\nnot counted: 16 requests that brought the server to this load\n" in said
    over = re.search(r"requests/s and tokens/s are over the (\S+) s in which all of it ran", said)
    assert over is not None
    assert 0.6 < float(over[1]) < 3
    trial = read_trial(out)
    assert trial.server_metrics["running_requests_mean"] >= 0.9 * 16
    tokens_per_s = re.search(r"([\d.]+) tokens/s", said)
    assert tokens_per_s is not None
    assert float(tokens_per_s[1]) <= 1.05 * 16 * 30 / 0.31


def test_at_a_rate_the_first_part_is_not_counted(told: Any, tmp_path: Path) -> None:
    """Answers take 0.2 s, so requests come for twice that long before they count, and until the
    last has ended."""
    out, steady = tmp_path / "run.json", Script(ttft_s=0.05, tpot_s=0.015)
    flags = ("--requests", "60", "--rate", "100", "--burstiness", "inf", "--max-tokens", "11")
    with FakeServer(steady) as server:
        _, said, _ = told(server.url, *flags, "--out", str(out), "--json")
    summary = json.loads(said)["summary"]
    assert (summary["num_requests"], summary["num_errors"]) == (60, 0)
    assert 38 <= summary["num_lead"] <= 60
    lead = [each for each in read_trial(out).records if each.is_warmup and each.block == 0]
    assert len(lead) == summary["num_lead"]
    assert summary["requests_per_s"] == pytest.approx(100, rel=0.15)
    assert len(server.bodies) >= 4 + 38 + 60 + 15, "others kept coming"


HELP = """
import sys
from outdraft.cli.main import main
try:
    main([sys.argv[1], "--help"])
finally:
    heavy = {"torch", "transformers", "fastapi", "numpy", "scipy", "aiohttp", "rich"}
    print("HEAVY", sorted(heavy & set(sys.modules)))
"""


@pytest.mark.parametrize("command", ["bench", "compare"])
def test_help_is_light_and_has_examples(command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HELP, command],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "HEAVY []" in done.stdout
    assert "examples:" in done.stdout
    assert f"outdraft {command} http://" in done.stdout
    assert "%%" not in done.stdout
