"""`outdraft bench` under several loads, and for a time."""

from __future__ import annotations

import csv
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from outdraft.cli.main import main
from outdraft.measure.saved import read_trial
from outdraft.records import trial_from_json
from outdraft.testing.fake_script import Script
from outdraft.testing.fake_server import FakeServer, fake_server
from tests.measure.exporter import PAGE, served_page
from tests.measure.patient import be_patient

# A token takes as long with up to four at a time; beyond, they are in each other's way.
FOUR_SLOTS = Script(ttft_s=0.001, tpot_s=0.005, speedup=lambda n: min(1.0, (4 / n) ** 1.5))
QUICK = Script(ttft_s=0.01, tpot_s=0.001)
SHORT = ("--requests", "16", "--max-tokens", "12", "--warmup", "1")


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs it in this process: the exit code, stdout and stderr."""
    be_patient(monkeypatch)

    def run(*words: str) -> tuple[int, str, str]:
        code = main(["bench", *words])
        caught = capsys.readouterr()
        return code, caught.out, caught.err

    return run


class TestSeveralLoads:
    def test_a_row_for_each_and_where_it_is_saturated(
        self, told: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        out, loads = tmp_path / "run.json", ("--concurrency", "1,4,16", "--requests", "32")
        with FakeServer(FOUR_SLOTS) as server:
            code, said, complaint = told(
                server.url, *SHORT, *loads, "--slo", "e2e=1s", "--out", str(out)
            )
        assert (code, complaint) == (0, "")
        head, *lines = said.splitlines()
        assert head.split()[:4] == ["requests", "failed", "/s", "tokens/s"]
        assert head.split()[-1] == "goodput/s"
        rows = [line.split() for line in lines[:3]]
        assert [row[:4] for row in rows] == [
            ["concurrency", size, "32", "0"] for size in ("1", "4", "16")
        ]
        assert "saturated at concurrency 4. More at a time give at most" in said
        texts = [body["messages"][0]["content"] for body in server.bodies]
        assert len(set(texts)) == len(texts), "nothing is sent twice: a cache would help"
        saved = json.loads(out.read_text())
        trials = [trial_from_json(each) for each in saved["loads"]]
        assert [each.load["concurrency"] for each in trials] == [1, 4, 16]
        assert saved["saturation"]["at"] == 4
        assert main(["compare", str(out), str(out)]) == 2
        assert capsys.readouterr().err == (
            f"outdraft: {out} holds 3 loads; give bench --out of a single load\n"
        )

    def test_as_json(self, told: Any) -> None:
        with fake_server(QUICK) as url:
            code, said, _ = told(url, *SHORT, "--rate", "40,80", "--burstiness", "inf", "--json")
        found = json.loads(said)
        assert code == 0
        assert found["valid"] is True
        assert [each["load"] for each in found["loads"]] == ["40 requests/s", "80 requests/s"]
        assert [each["summary"]["num_requests"] for each in found["loads"]] == [16, 16]
        assert found["saturation"]["at"] is None
        assert found["saturation"]["words"] == "keeps up with 80 requests/s, the most sent here"

    def test_as_csv_and_a_page(
        self, told: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """With a GPU beside the server, as nvidia-smi tells it."""
        program = tmp_path / "nvidia-smi"
        loop = "*--loop-ms*) while :; do echo '0, 2048, 50'; sleep 0.05; done"
        program.write_text(f"#!/bin/sh\ncase $* in {loop} ;; esac\nexit 1\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        table, page = tmp_path / "run.csv", tmp_path / "run.html"
        flags = ("--csv", str(table), "--page", str(page))
        with fake_server(Script(ttft_s=0.01, tpot_s=0.001, k=3)) as url:
            _, said, _ = told(url, *SHORT, "--concurrency", "1,2", *flags)
        gpu = "0: 2.0 GiB in use at most, busy 50 % of the time"
        assert f"concurrency 2: GPU {gpu}" in said
        assert f"{url}: bench" in page.read_text()
        assert gpu in page.read_text()
        one, two = csv.DictReader(table.read_text().splitlines())
        assert (one["load"], one["concurrency"], one["rate"]) == ("concurrency 1", "1", "")
        assert (one["num_requests"], two["num_errors"], two["valid"]) == ("16", "0", "True")
        assert float(one["ttft_p50_ms"]) >= 10
        assert (one["e2e_p99_ms"], one["goodput_per_s"]) == ("", "")
        assert 0 < float(two["acceptance_rate"]) < 1
        assert float(two["mean_output_tokens"]) == 12
        assert float(two["running_requests_max"]) >= 1
        assert (two["gpu0_memory_gib_max"], two["gpu0_busy_share_mean"]) == ("2.0", "0.5")

    def test_gpus_of_another_machine(self, told: Any, tmp_path: Path) -> None:
        table = tmp_path / "run.csv"
        script = Script(ttft_s=0.01, tpot_s=0.01)
        with fake_server(script) as url, served_page(PAGE) as gpus:
            page = ("--gpu-metrics", f"{gpus}/metrics")
            _, said, _ = told(url, *SHORT, *page, "--csv", str(table))
            code, _, complaint = told(url, *SHORT, *page, *page)
        assert "GPU 0: 70.0 GiB in use at most, busy 93 % of the time" in said
        [row] = csv.DictReader(table.read_text().splitlines())
        assert row["gpu1_memory_gib_max"] == "2.0"
        assert code == 2
        assert "--gpu-metrics is given 2 times, for 1 server;" in complaint

    def test_notes_name_their_load(self, told: Any) -> None:
        """The 40th request of all fails, which is one of the second load."""
        with fake_server(QUICK, failures={"http_500": 40}) as url:
            code, said, _ = told(url, *SHORT, "--concurrency", "1,2,4", "--warmup", "0")
        assert code == 1
        [note] = [line for line in said.splitlines() if line.startswith("note: ")]
        assert note.startswith("note: concurrency ")
        assert "1 of 16 requests failed" in note
        assert " INVALID " in said

    def test_a_server_that_dies_ends_it(self, told: Any) -> None:
        server = FakeServer(QUICK, failures={"reset": 1})
        with server:
            code, said, _ = told(server.url, *SHORT, "--concurrency", "1,2,4")
        assert code == 1
        assert "concurrency 2" not in said

    def test_control_c_ends_it_with_the_loads_so_far(self, told: Any) -> None:
        class Stopping(FakeServer):
            is_over = False

            def _request_ended(self) -> None:
                super()._request_ended()
                if self.metrics.num_requests >= 24 and not self.is_over:
                    self.is_over = True
                    os.kill(os.getpid(), signal.SIGINT)

        with Stopping(QUICK) as server:
            code, said, _ = told(server.url, *SHORT, "--concurrency", "1,2,4")
        assert code == 1
        assert "concurrency 1 " in said
        assert "concurrency 2: stopped after " in said
        assert "concurrency 4" not in said

    @pytest.mark.parametrize(
        ("flags", "named"),
        [
            (("--concurrency", "1,2,2"), "--concurrency '1,2,2' names one twice"),
            (("--concurrency", "1,0"), "--concurrency must be at least 1, got 0"),
            (("--concurrency", "1,"), "--concurrency takes a whole number, got ''"),
            (("--rate", "1,x"), "--rate takes a number, got 'x'"),
            (("--rate", "1,0"), "a rate must be greater than 0, got 0"),
            (("--duration", "soon"), "--duration 'soon' is not a duration"),
        ],
    )
    def test_what_is_no_list_of_loads(self, told: Any, flags: tuple[str, ...], named: str) -> None:
        code, said, complaint = told("http://127.0.0.1:9", *flags)
        assert (code, said) == (2, "")
        assert named in complaint


class TestForATime:
    @pytest.mark.parametrize("processes", ["1", "2"])
    def test_so_many_at_a_time(self, told: Any, tmp_path: Path, processes: str) -> None:
        out = tmp_path / "run.json"
        flags = ("--duration", "1s", "--concurrency", "4", "--max-tokens", "20", "--warmup", "1")
        with FakeServer(QUICK) as server:
            _, said, _ = told(server.url, *flags, "--processes", processes, "--out", str(out))
        trial = read_trial(out)
        counted = [each for each in trial.records if not each.is_warmup]
        due = [each.scheduled_ns for each in counted]
        assert 0.7e9 < max(due) - min(due) < 1.1e9
        assert 40 <= len(counted) <= 160
        assert f"{len(counted)} requests in " in said
        assert "stopped" not in said
        assert trial.load["duration_s"] == 1
        assert all(each.ok for each in counted)

    def test_or_so_many_requests(self, told: Any) -> None:
        with fake_server(QUICK) as url:
            code, said, _ = told(url, *SHORT, "--duration", "1m", "--concurrency", "2")
        assert code == 0
        assert "16 requests in " in said

    def test_at_a_rate(self, told: Any) -> None:
        with fake_server(QUICK) as url:
            flags = ("--duration", "0.5s", "--rate", "50", "--warmup", "1", "--max-tokens", "4")
            _, said, _ = told(url, *flags, "--json")
        assert json.loads(said)["summary"]["num_requests"] == 25

    def test_of_a_trace(self, told: Any, tmp_path: Path) -> None:
        trace = tmp_path / "trace.jsonl"
        lines = [{"timestamp": n, "prompt": f"number {n}"} for n in range(9)]
        trace.write_text("\n".join(map(json.dumps, lines)))
        with fake_server(QUICK) as url:
            flags = ("--replay", str(trace), "--replay-speed", "100", "--duration", "50ms")
            _, said, _ = told(url, *flags, "--max-tokens", "3", "--json")
        assert json.loads(said)["summary"]["num_requests"] == 5


def test_no_p99_of_few_requests(told: Any) -> None:
    with fake_server(QUICK) as url:
        _, said, _ = told(url, *SHORT, "--concurrency", "2")
        _, as_json, _ = told(url, *SHORT, "--concurrency", "2", "--json")
    for line in said.splitlines()[1:4]:
        assert line.endswith("  too few")
    *others, p99 = json.loads(as_json)["summary"]["e2e"]
    assert (p99["q"], p99["value"], p99["low"]) == (0.99, None, None)
    assert all(each["value"] > 0 for each in others)


@pytest.mark.parametrize("load", [("--concurrency", "4"), ("--rate", "200")])
def test_all_at_once(told: Any, tmp_path: Path, load: tuple[str, str]) -> None:
    """As other tools do it: every request but those of the warm-up counts."""
    out = tmp_path / "run.json"
    with FakeServer(QUICK) as server:
        _, said, _ = told(server.url, *SHORT, *load, "--all-at-once", "--out", str(out))
    texts = [body["messages"][0]["content"] for body in server.bodies]
    assert not any(text.startswith("[spare-") for text in texts)
    assert "not counted" not in said
    trial = read_trial(out)
    assert trial.load["all_at_once"] is True
    assert len(texts) == len(trial.records) == 17
