"""`outdraft compare`: two live servers, and two runs that were saved."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from outdraft.cli.main import main
from outdraft.measure.plateau import tokens_per_s
from outdraft.measure.saved import read_trial
from outdraft.records import Record, Trial, read_record_journal, record_from_json
from outdraft.testing.fake_script import Script
from outdraft.testing.fake_server import FakeServer, fake_server, refusing_url
from outdraft.whole_file import write_json
from tests.measure.exporter import PAGE, served_page
from tests.measure.patient import be_patient
from tests.measure.simulated import Simulated

from .drafts import trained_draft

SLOW = Script(ttft_s=0.04, tpot_s=0.01)
FAST = replace(SLOW, k=3, speedup=4.0)
QUICK = Script(ttft_s=0.01, tpot_s=0.001)
SHORT = ("--requests", "20", "--block", "4", "--concurrency", "2", "--max-tokens", "8",
         "--category", "code")  # fmt: skip


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs it in this process: the exit code, stdout and stderr."""

    def run(*words: str) -> tuple[int, str, str]:
        code = main(["compare", *words])
        caught = capsys.readouterr()
        return code, caught.out, caught.err

    return run


@pytest.fixture
def slow_and_fast(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, str]]:
    """Two servers that are there to be asked what they are; their answers are not waited for."""
    with fake_server(SLOW) as off, fake_server(FAST) as on:
        monkeypatch.setattr("outdraft.measure.compare.run_load", Simulated({off: SLOW, on: FAST}))
        yield off, on


def test_one_look_sends_all_requests(told: Any, slow_and_fast: tuple[str, str]) -> None:
    words = (*slow_and_fast, "--requests", "80", *SHORT[2:], "--json")
    blocks = [json.loads(told(*words, *more)[1])["load"]["num_blocks"]
              for more in ((), ("--one-look",))]  # fmt: skip
    assert blocks == [5, 20]


def test_two_servers_to_json_and_a_file(
    told: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    be_patient(monkeypatch)
    out, page = tmp_path / "both.json", tmp_path / "both.html"
    files = ("--out", str(out), "--page", str(page))
    with fake_server(SLOW) as off, fake_server(FAST) as on, served_page(PAGE) as gpus:
        idle = served_page(PAGE.replace("71680", "1024"))
        with idle as others:
            pages = ("--gpu-metrics", gpus, "--gpu-metrics", others)
            code, said, complaint = told(off, on, *SHORT, "--json", *files, *pages)
    assert code == 0, said + complaint
    assert f"{on} against {off}: comparison" in page.read_text()
    assert complaint == ""
    assert said.count("\n") == 1
    found = json.loads(said)
    assert found.keys() == {"verdict", "ratios", "texts", "load"}
    names = ("running_requests", "running_requests_interval", "gpus")
    running, bounds, gpus_of = (found["load"].pop(each) for each in names)
    used = {arm: each["gpu0_memory_gib_max"] for arm, each in gpus_of.items()}
    assert used == {"baseline": 70.0, "candidate": 1.0}
    assert gpus_of["baseline"]["gpu0_busy_share_mean"] == pytest.approx(0.93)
    assert found["load"] == {"concurrency": 2, "block_size": 4, "num_blocks": 5}
    assert all(0 < running[arm] <= 2 for arm in ("baseline", "candidate"))
    assert all(bounds[arm][0] <= running[arm] <= bounds[arm][1] for arm in running)
    found["load"] |= dict(zip(names, (running, bounds, gpus_of), strict=True))
    assert found["texts"]["agreement"]["num_identical"] == 20
    assert found["texts"]["floor"] is None, "all agree: nothing has to be explained"
    assert found["verdict"]["decision"] == "SHIP"
    assert {"decision", "ship_for", "reasons", "checks", "losers", "whole_wins"} == found[
        "verdict"
    ].keys()
    assert {"name", "value", "threshold", "state", "advice"} == found["verdict"]["checks"][0].keys()
    assert {"e2e", "tpot", "ttft", "throughput", "p99"} <= found["ratios"].keys()
    assert found["ratios"]["e2e"]["low"] > 1.01
    written = json.loads(out.read_text())
    assert written["schema"] == 1
    assert {key: written[key] for key in found} == found
    records = [record_from_json(each) for each in written["records"]]
    assert len(records) == 2 * 6 * 2 + 2 * 4 + 2 * 20, "with two leads in each block"
    assert sum(not each.is_warmup for each in records) == 2 * 20
    assert written["settings"]["block_size"] == 4
    left = {each.name for each in tmp_path.iterdir()}
    assert left == {"both.json", "both.html"}, "the journal is gone"


def test_a_row_for_each_block_of_each_server(
    told: Any, slow_and_fast: tuple[str, str], tmp_path: Path
) -> None:
    table, out = tmp_path / "both.csv", tmp_path / "both.json"
    told(*slow_and_fast, *SHORT, "--csv", str(table), "--out", str(out))
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert [(each["arm"], each["block"]) for each in rows] == [
        (arm, str(block)) for block in range(5) for arm in ("baseline", "candidate")
    ]
    assert {each["num_requests"] for each in rows} == {"4"}
    assert all(float(each["tokens_per_s"]) > 0 and each["goodput_per_s"] == "" for each in rows)
    off, on = ([float(each["e2e_p50_ms"]) for each in rows[place::2]] for place in (0, 1))
    assert min(off) > max(on)
    assert {each["acceptance_rate"] == "" for each in rows[::2]} == {True}
    assert all(0 < float(each["acceptance_rate"]) <= 1 for each in rows[1::2])
    records = [record_from_json(each) for each in json.loads(out.read_text())["records"]]
    first = [each for each in records if (each.arm, each.block) == ("baseline", 0)]
    assert float(rows[0]["tokens_per_s"]) == pytest.approx(tokens_per_s(first))


def test_more_gpu_pages_than_servers(told: Any) -> None:
    with served_page(PAGE) as url, fake_server(QUICK) as off:
        code, _, complaint = told(off, off, *SHORT, *3 * ("--gpu-metrics", url))
    assert code == 2
    assert "--gpu-metrics is given 3 times, for 2 servers" in complaint


@pytest.mark.parametrize("method", ["ngram", "draft_model", None])
def test_the_advice_fits_what_the_candidate_runs(
    told: Any, method: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    barely = replace(SLOW, k=3, speedup=1.1)
    page = {"version": "0.1.0"} | ({} if method is None else {"method": method})
    with fake_server(SLOW) as off, FakeServer(barely, pages={"/version": page}) as on:
        simulated = Simulated({off: SLOW, on.url: barely})
        monkeypatch.setattr("outdraft.measure.compare.run_load", simulated)
        _, said, _ = told(off, on.url, *SHORT, "--json")
    checks = {each["name"]: each["advice"] for each in json.loads(said)["verdict"]["checks"]}
    assert "the gain is small" in checks["speedup"]
    assert ("a second model" in checks["speedup"]) == (method == "draft_model")


def test_no_more_is_sent_than_was_allowed(
    told: Any, slow_and_fast: tuple[str, str], tmp_path: Path
) -> None:
    """Five blocks of the usual size would be sixty requests."""
    out = tmp_path / "both.json"
    flags = ("--requests", "10", "--max-tokens", "4", "--concurrency", "1")
    code, _, _ = told(*slow_and_fast, *flags, "--out", str(out))
    assert code == 0
    records = json.loads(out.read_text())["records"]
    assert sum(not each["is_warmup"] for each in records) == 2 * 10


def test_too_many_failures(told: Any, tmp_path: Path) -> None:
    out = tmp_path / "both.json"
    with fake_server(QUICK) as off, fake_server(QUICK, failures={"http_503": 5}) as on:
        code, said, complaint = told(off, on, *SHORT, "--concurrency", "1", "--out", str(out))
    assert code == 1
    assert complaint == ""
    assert "INCONCLUSIVE" in said
    assert "the run is invalid" in said
    assert "candidate: 4 of 20 requests failed (20.0%): http 503 × 4; at most 5% may" in said
    assert len(json.loads(out.read_text())["records"]) == 48


@pytest.mark.slow
def test_killed_in_the_middle(tmp_path: Path) -> None:
    out = tmp_path / "both.json"
    journal = Path(f"{out}.journal")
    with FakeServer(QUICK) as server:
        command = [sys.executable, "-m", "outdraft", "compare", server.url, server.url]
        with subprocess.Popen(
            [*command, "--requests", "4000", "--max-tokens", "4", "--out", str(out)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            until = time.monotonic() + 30
            while not journal.exists() or journal.read_bytes().count(b"\n") < 40:
                assert time.monotonic() < until
                time.sleep(0.01)
            process.send_signal(signal.SIGKILL)
            process.wait(30)
    assert not out.exists()
    records = read_record_journal(journal)
    assert {each.arm for each in records} == {"baseline", "candidate"}
    texts = [body["messages"][0]["content"] for body in server.bodies]
    assert len(set(texts)) == len(texts), "A against A: no text is sent twice"


def test_the_noise_floor_of_a_server_against_itself(
    told: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "aa.json"
    with fake_server(QUICK) as url:
        noisy = replace(QUICK, noise=0.05)
        load = Simulated({url: noisy, f"{url}/": noisy})
        monkeypatch.setattr("outdraft.measure.compare.run_load", load)
        code, said, _ = told(url, url, *SHORT, "--out", str(out))
        assert code == 0
        floor = json.loads(out.read_text())["noise_floor"]
        assert floor > 0
        assert f"noise floor: {floor:.3f} (A/A)" in said
        both = tmp_path / "both.json"
        told(url, f"{url}/", *SHORT, "--noise-floor", str(out), "--out", str(both))
        assert json.loads(both.read_text())["settings"]["noise_floor"] == floor
        code, _, complaint = told(url, url, "--noise-floor", str(both))
    assert code == 2
    assert "no A/A run; make one: outdraft compare URL URL --out FILE" in complaint


def test_a_plan_adds_its_checks(
    told: Any, slow_and_fast: tuple[str, str], tmp_path: Path, capsys: Any
) -> None:
    plan = tmp_path / "plan.json"
    flags = ("--draft", "llama-3.1-8b", "--gpu", "h100:2", "--target-quantization", "int8")
    assert main(["plan", "--target", "llama-3.1-70b", *flags, "--json"]) == 0
    plan.write_text(capsys.readouterr().out)
    code, said, _ = told(*slow_and_fast, *SHORT, "--plan", str(plan), "--json")
    assert code == 0
    names = {each["name"] for each in json.loads(said)["verdict"]["checks"]}
    assert {"draft_memory", "headroom", "target_memory", "size_ratio", "tokenizer"} <= names
    plan.write_text('{"shares": {"target": 1}}')
    code, _, complaint = told("http://a", "http://b", "--plan", str(plan))
    assert code == 2
    assert "is no plan" in complaint


@pytest.mark.parametrize("dead", [0, 1])
def test_a_dead_server_is_one_line(told: Any, dead: int) -> None:
    with fake_server(QUICK) as url:
        urls = [url, url]
        urls[dead] = refusing_url()
        code, said, complaint = told(*urls)
    assert (code, said) == (2, "")
    assert complaint.startswith(f"outdraft: no server answers at {urls[dead]}")
    assert complaint.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("http://a", "run.json"), "two URLs or two saved runs, not one of each"),
        (("no.json", "no.json"), "cannot read no.json: No such file"),
        (("http://a", "http://b", "--requests", "0"), "--requests must be at least 10, got 0"),
        (("http://a", "http://b", "--requests", "9"), "--requests must be at least 10, got 9"),
        (("http://a", "http://b", "--block", "1"), "--block must be at least 2, got 1"),
        (("http://a", "http://b", "--block", "7"), "--block must be at least 8 there"),
        (("http://a", "http://b", "--requests", "39"), "too few for 5 blocks with 4 running; giv"),
        (("http://a", "http://b", "--concurrency", "0"), "--concurrency must be at least 1"),
        (("http://a", "http://b", "--margin", "1"), "--margin must be between 0 and 0.99, got 1"),
        (("http://a", "http://b", "--noise-floor", "nan"), "--noise-floor 'nan' is neither"),
        (("http://a", "http://b", "--temperature", "0:1%"), "the shares sum to 1 %"),
        (("http://a", "http://b", "--prompts", "random"), "--force-random"),
        (("http://a",), "CANDIDATE"),
    ],
)
def test_options_that_cannot_be(told: Any, words: tuple[str, ...], named: str) -> None:
    code, said, complaint = told(*words)
    assert (code, said) == (2, "")
    assert complaint.startswith("outdraft: ")
    assert complaint.count("\n") == 1
    assert named in complaint


def test_prompts_that_the_draft_has_seen(told: Any, tmp_path: Path) -> None:
    """They are left out, and everybody who reads the verdict is told so."""
    draft, out = trained_draft(tmp_path), tmp_path / "both.json"
    flags = ("--requests", "40", "--max-tokens", "8", "--stop-at-eos", "--json")
    with FakeServer(QUICK) as off, FakeServer(QUICK) as on:
        told(off.url, on.url, *flags, *draft, "--out", str(out))
        bodies = [*off.bodies, *on.bodies]
    note = f"3 of 9 prompts were used to train {draft[-1]} and are left out"
    written = json.loads(out.read_text())
    assert note in written["verdict"]["reasons"]
    assert written["settings"]["draft"] == draft[-1]
    assert written["settings"]["stop_at_eos"] is True
    assert not any("ignore_eos" in body for body in bodies)
    asked = {body["messages"][0]["content"].partition("] ")[2] for body in bodies}
    assert asked == {f"question {number}" for number in range(3, 9)}


class TestSavedRuns:
    def saved(self, path: Path, ms: float, prompts: str = "p", **fields: Any) -> str:
        """64 requests, each with a time of its own around `ms`."""
        records = tuple(
            Record(
                f"{prompts}{n}",
                "chat",
                0.0,
                "server",
                0,
                n,
                scheduled_ns=0,
                first_ns=10**6 * (10 + n % 3),
                last_ns=round(10**6 * ms * (1 + (n * 37 % 64) / 640)),
                completion_tokens=10,
                text="same",
            )
            for n in range(64)
        )
        write_json(path, Trial("server", "http://x", {}, records, "now", **fields).to_json())
        return str(path)

    def test_side_by_side(self, told: Any, tmp_path: Path) -> None:
        off = self.saved(tmp_path / "off.json", 300)
        on = self.saved(tmp_path / "on.json", 200)
        code, said, _ = told(off, on, "--json")
        assert code == 0
        found = json.loads(said)
        assert found["verdict"]["decision"] == "SHIP"
        assert found["ratios"]["e2e"]["estimate"] == pytest.approx(1.5)
        assert found["ratios"]["e2e"]["num_blocks"] == 6
        assert any("not in turns" in each for each in found["verdict"]["reasons"])
        _, table, _ = told(on, off)
        assert "DON'T SHIP" in table
        assert "64 of 64 greedy texts are the baseline's" in table

    def test_as_csv(self, told: Any, tmp_path: Path) -> None:
        """A block is a part of a run that did not stop for it: it has no pace of its own."""
        table = tmp_path / "both.csv"
        off, on = (self.saved(tmp_path / f"{ms}.json", ms) for ms in (300, 200))
        told(off, on, "--csv", str(table))
        rows = list(csv.DictReader(table.read_text().splitlines()))
        assert [each["num_requests"] for each in rows] == 10 * ["12"] + 2 * ["4"]
        assert {each["tokens_per_s"] + each["requests_per_s"] for each in rows} == {""}
        one, two = (float(each["e2e_p50_ms"]) for each in rows[:2])
        assert one / two == pytest.approx(1.5)

    def test_a_draft_is_named_where_prompts_are_sent(self, told: Any, tmp_path: Path) -> None:
        off = self.saved(tmp_path / "off.json", 300)
        code, _, complaint = told(off, off, "--draft", "smollm2-135m-draft")
        assert code == 2
        assert "give --draft to bench" in complaint

    def test_one_of_them_is_invalid(self, told: Any, tmp_path: Path) -> None:
        off = self.saved(tmp_path / "off.json", 300)
        problems = ("40 of 64 requests failed",)
        on = self.saved(tmp_path / "on.json", 200, is_valid=False, problems=problems)
        code, said, _ = told(off, on)
        assert code == 1
        assert "INCONCLUSIVE" in said
        assert "the run is invalid" in said
        assert "40 of 64 requests failed" in said

    def test_other_prompts(self, told: Any, tmp_path: Path) -> None:
        off = self.saved(tmp_path / "off.json", 300)
        on = self.saved(tmp_path / "on.json", 200, prompts="q")
        code, said, complaint = told(off, on)
        assert (code, said) == (2, "")
        assert "no request in common" in complaint

    def test_what_bench_wrote(self, told: Any, tmp_path: Path) -> None:
        """The same seed makes the same plan, so two runs of bench can be put side by side."""
        names = [str(tmp_path / name) for name in ("off.json", "on.json")]
        for script, name in zip((QUICK, replace(QUICK, k=3)), names, strict=True):
            with fake_server(script) as url:
                flags = ("--requests", "60", "--concurrency", "20", "--max-tokens", "4")
                main(["bench", url, *flags, "--out", name])
        assert len(read_trial(Path(names[0])).records) == 64 + 20
        told(*names)  # drops what bench said
        _, said, complaint = told(*names, "--json")
        assert complaint == ""
        assert json.loads(said)["ratios"]["e2e"]["num_pairs"] == 60
