"""`outdraft tune --off --on`: servers that somebody else started."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from outdraft.cli.main import find_command, main
from outdraft.observe import RemoteServer
from outdraft.testing.fake_script import Script
from outdraft.testing.fake_server import FakeServer, refusing_url
from outdraft.tune.journal import Journal
from outdraft.tune.run import RunPlan, plan_run
from outdraft.tune.settings import RunSettings
from tests.measure.patient import be_patient

OFF = Script(ttft_s=0.006, tpot_s=0.006)
FAST = replace(OFF, k=4, acceptance=0.8, speedup=1.6)
SLOW = replace(OFF, k=2, acceptance=0.3, speedup=0.8)
QUICK = ("--max-tokens", "10", "--concurrency", "1", "--block", "2", "--budget", "5s")
PAGES = {"/version": {"version": "0.22.1"}}


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs it in this process: the exit code, stdout and stderr."""

    def run(*words: str) -> tuple[int, str, str]:
        code = main(["tune", *words])
        caught = capsys.readouterr()
        return code, caught.out, caught.err

    return run


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    be_patient(monkeypatch)


def served(script: Script, **options: Any) -> FakeServer:
    return FakeServer(script, pages=PAGES, model="org/target", **options)


def test_servers_of_others_get_a_verdict(told: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with served(OFF) as off, served(FAST) as fast, served(SLOW) as slow:
        words = (
            "--off", off.url, "--on", f"eagle:draft=./none/head,k=4@{fast.url}/v1",
            "--on", f"ngram:k=2@{slow.url}", *QUICK, "--out", str(out),
        )  # fmt: skip
        code, said, notes = told(*words)
        assert code == 0, notes
        last = said.splitlines()[-1]
        assert last.startswith("best: eagle head k=4 · 1."), said
        assert last.endswith("· SHIP · turn it on: it pays at 1 request at a time"), last
        assert "./none/head cannot be read here" in notes
        assert all(RemoteServer(each.url).is_ready() for each in (off, fast, slow)), (
            "nobody stops them"
        )
        # What is measured stays measured.
        before = [each.metrics.num_requests for each in (off, fast, slow)]
        assert told(*words)[0] == 0
        assert [each.metrics.num_requests for each in (off, fast, slow)] == before
    results = json.loads((out / "results.json").read_text())
    assert (results["backend"], results["target"]) == ("vllm", "org/target")
    assert results["settings"]["target"] is None
    (load,) = results["loads"]
    measured = {arm["name"]: arm["measured"] for arm in load["arms"]}
    assert 1.4 < measured["eagle head k=4"]["estimate"] < 1.75
    header = json.loads((out / "journal.jsonl").read_text().splitlines()[0])
    assert header["server of off"] == f"{off.url}, vllm 0.22.1, org/target"
    assert header["server of ngram k=2"] == f"{slow.url}, vllm 0.22.1, org/target"


@pytest.mark.slow
def test_a_server_that_does_not_do_what_is_said_fails_as_an_arm(told: Any, tmp_path: Path) -> None:
    with served(OFF) as off, served(OFF) as idle, served(FAST) as fast:
        code, said, _ = told(
            "--off", off.url, "--on", f"ngram:k=3@{idle.url}",
            "--on", f"suffix:k=4@{fast.url}", "--keep-memory", *QUICK, "--out", str(tmp_path),
        )  # fmt: skip
    assert code == 0
    assert "vllm was started with method ngram but " in said
    assert said.splitlines()[-1].startswith("best: suffix k=4 · 1.")


def test_an_off_that_drafts_is_no_baseline(told: Any, tmp_path: Path) -> None:
    with served(FAST) as off, served(FAST) as on:
        words = ("--off", off.url, "--on", f"ngram:k=4@{on.url}")
        code, said, complaint = told(*words, *QUICK, "--out", str(tmp_path))
    assert (code, said) == (2, "")
    assert "tokens though speculation is off" in complaint


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--off", "http://h:1"), "--off needs --on SPEC@URL too"),
        (("--on", "ngram:k=3@http://h:1"), "--on needs --off URL too"),
        (("--off", "h:1", "--on", "ngram:k=3@http://h:2"), "is no URL of a server"),
        (("--off", "http://h:1", "--on", "http://h:2"), "is no server of an arm; write e.g."),
        (("--off", "http://h:1", "--on", "ngram@http://h:2"), "say which draft length"),
        (("--off", "http://h:1", "--on", "off@http://h:2"), "with --off"),
        (("--off", "http://h:1", "--on", "eagle:k=3@http://h:2"), "method eagle needs a draft"),
        (("--off", "http://h:1", "--on", "ngram:q=3@http://h:2"), "unknown speculation key 'q'"),
        (("--off", "http://h:1", "--on", "ngram:k=x@http://h:2"), "k must be a whole number"),
        (("--off", "http://h:1", "--on", "ngram:k=3@http://h:1/v1"), "the URL http://h:1 twice"),
        (("--off", "http://h:1", "--on", "ngram:k=3@http://h:2", "--on",
          "ngram:k=3@http://h:3"), "the arm ngram k=3 twice"),
        (("--api-key", "x"), "--api-key is for the servers of --off and --on"),
        *(
            (("--off", "http://h:1", "--on", "ngram:k=3@http://h:2", flag, value),
             f"{flag} is for engines that are started here")
            for flag, value in (("--engine", "vllm"), ("--methods", "ngram"), ("--k", "2,4"),
                                ("--draft", "x"), ("--engine-flags", "x"), ("--gpu", "h200"),
                                ("--max-num-seqs", "4"), ("--keep-engines", "visits"))
        ),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_in_one_line(
    told: Any, tmp_path: Path, words: tuple[str, ...], named: str
) -> None:
    out = tmp_path / "out"
    code, said, complaint = told(*words, "--out", str(out))
    assert (code, said) == (2, "")
    assert complaint.count("\n") == 1, complaint
    assert named in complaint
    assert not out.exists()


def refused(told: Any, off: str, on: str, *words: str) -> str:
    code, said, complaint = told("--off", off, "--on", on, *words)
    assert (code, said) == (2, "")
    assert complaint.count("\n") == 1, complaint
    return str(complaint)


def test_servers_that_cannot_be_compared(
    told: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with served(OFF) as off, served(FAST, dialect="sglang") as other, served(OFF) as silent:
        silent.serve_metrics = False
        assert "vllm 0.22.1: arms are compared on one engine" in refused(
            told, off.url, f"ngram:k=4@{other.url}"
        )
        assert "no server answers at" in refused(told, off.url, f"ngram:k=4@{refusing_url()}")
        assert "does not say which engine it is" in refused(
            told, silent.url, f"ngram:k=4@{off.url}"
        )
        assert "ngram k=4 remembers answers (" in refused(
            told, f"{other.url}", f"ngram:k=4@{other.url.replace('127.0.0.1', 'localhost')}"
        )


def plan(*words: str) -> RunPlan:
    return plan_run(RunSettings.from_options(find_command("tune").parse(words)))


def test_another_server_is_another_run(told: Any, tmp_path: Path) -> None:
    newer = {"/version": {"version": "0.23.0"}}
    with served(OFF) as off, served(FAST) as on, FakeServer(OFF, pages=newer) as other:
        words = ("--on", f"ngram:k=4@{on.url}", "--out", str(tmp_path))
        Journal(tmp_path / "journal.jsonl", plan("--off", off.url, *words).header).close()
        code, _, complaint = told("--off", other.url, *words)
        assert code == 2
        assert f'another off ("{off.url}", now "{other.url}")' in complaint
        on._pages |= newer
        code, _, complaint = told("--off", off.url, *words)
    assert code == 2
    assert f'another server of ngram k=4 ("{on.url}, vllm 0.22.1, org/target", now "' in complaint


def test_differences_are_said_and_a_key_is_kept_secret() -> None:
    with served(OFF) as off, FakeServer(FAST, pages={"/version": {"version": "0.23.0"}}) as on:
        made = plan("--off", off.url, "--on", f"ngram:k=4@{on.url}", "--api-key", "sk-Zq81",
                    "--target", "./mine")  # fmt: skip
    first, *notes = made.context.warnings
    assert "started by others" in first
    assert [each.partition(":")[0] for each in notes] == [
        "ngram k=4 has version 0.23.0, off 0.22.1",
        "ngram k=4 has model fake, off org/target",
    ]
    assert made.context.target == "./mine"
    assert "sk-Zq81" not in f"{made.header}{made.context}{made.settings}"
