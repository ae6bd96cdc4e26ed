"""`outdraft bench`: what is in the requests that it sends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from outdraft.cli.main import main
from outdraft.measure.saved import read_trial
from outdraft.testing.fake_script import Script
from outdraft.testing.fake_server import FakeServer
from tests.measure.patient import be_patient

QUICK = Script(ttft_s=0.01, tpot_s=0.001)
SHORT = ("--requests", "8", "--concurrency", "2", "--warmup", "1")


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs it in this process: the exit code, stdout and stderr."""
    be_patient(monkeypatch)

    def run(*words: str) -> tuple[int, str, str]:
        code = main([*words])
        caught = capsys.readouterr()
        return code, caught.out, caught.err

    return run


def text_of(body: dict[str, Any]) -> str:
    return str(body["messages"][0]["content"])


class TestLengths:
    def test_as_the_server_counts(self, told: Any, tmp_path: Path) -> None:
        out = tmp_path / "run.json"
        with FakeServer(QUICK, serve_tokenize=True) as server:
            code, said, _ = told("bench", server.url, *SHORT, "--input-len", "64",
                                 "--output-len", "5", "--out", str(out))  # fmt: skip
        assert code == 0
        trial = read_trial(out)
        counted = [each for each in trial.records if not each.is_warmup]
        assert {each.prompt_tokens for each in trial.records} == {64}
        assert {each.completion_tokens for each in counted} == {5}
        assert (trial.load["input_len"], trial.load["output_len"]) == ("64", "5")
        assert "note:" not in said
        texts = [text_of(body) for body in server.bodies]
        assert len(set(texts)) == len(texts)

    def test_from_one_to_another(self, told: Any, tmp_path: Path) -> None:
        out = tmp_path / "run.json"
        lengths = ("--input-len", "20-90", "--output-len", "2-9")
        with FakeServer(QUICK, serve_tokenize=True) as server:
            told("bench", server.url, *SHORT, *lengths, "--out", str(out))
        counted = [each for each in read_trial(out).records if not each.is_warmup]
        prompts = {each.prompt_tokens or 0 for each in counted}
        assert 20 <= min(prompts) < max(prompts) <= 90
        assert len({each.completion_tokens for each in counted}) > 2

    def test_estimated_where_the_server_does_not_count(self, told: Any) -> None:
        with FakeServer(QUICK) as server:
            _, said, _ = told("bench", server.url, *SHORT, "--input-len", "200")
        assert "note: the server has no /tokenize: lengths of prompts are estimated" in said
        assert " of 8 prompts are not of 200 tokens, as the server counts: they have " in said
        lengths = [len(text_of(body).split()) for body in server.bodies[3:]]
        assert all(120 < each < 320 for each in lengths)

    def test_in_a_trace(self, told: Any, tmp_path: Path) -> None:
        trace = tmp_path / "trace.jsonl"
        lines = [{"timestamp": n / 100, "prompt": f"number {n}"} for n in range(4)]
        trace.write_text("\n".join(map(json.dumps, lines)))
        flags = ("--replay", str(trace), "--input-len", "30", "--max-tokens", "3", "--warmup", "0")
        with FakeServer(QUICK, serve_tokenize=True) as server:
            told("bench", server.url, *flags)
        assert [text_of(body).split()[:2] for body in server.bodies[1:]] == [
            ["number", f"{n}"] for n in range(4)
        ]

    @pytest.mark.parametrize(
        ("flags", "named"),
        [
            (("--output-len", "9", "--max-tokens", "9"), "--output-len and --max-tokens both say"),
            (("--output-len", "9", "--stop-at-eos"), "--output-len and --stop-at-eos both say"),
            (("--input-len", "long"), "'long' is no length in tokens"),
            (("--input-len", "9", "--prompts", "random"), "--force-random"),
        ],
    )
    def test_what_cannot_be(self, told: Any, flags: tuple[str, ...], named: str) -> None:
        code, said, complaint = told("bench", "http://127.0.0.1:9", *flags)
        assert (code, said) == (2, "")
        assert named in complaint


class TestSessions:
    def test_times_for_each_turn(self, told: Any, tmp_path: Path) -> None:
        out = tmp_path / "run.json"
        flags = ("--turns", "3", "--requests", "17", "--max-tokens", "6", "--out", str(out))
        with FakeServer(QUICK) as server:
            code, said, _ = told("bench", server.url, "--concurrency", "2", *flags)
            _, as_json, _ = told("bench", server.url, "--concurrency", "1", *flags, "--json")
        assert code == 0
        counted = [each for each in read_trial(out).records if not each.is_warmup]
        assert [each.turn for each in counted] == [0, 1, 2] * 6
        assert "18 requests in " in said, "whole sessions"
        rows = [line.split() for line in said.splitlines() if line.startswith("turn ")]
        assert [row[:3] for row in rows] == [["turn", f"{n}", "6"] for n in (1, 2, 3)]
        tokens = [float(row[3]) for row in rows]
        assert tokens[0] < tokens[1] < tokens[2]
        turns = json.loads(as_json)["summary"]["turns"]
        assert [each["turn"] for each in turns] == [1, 2, 3]
        assert turns[0]["ttft"][2]["value"] is None
        texts = [body["messages"] for body in server.bodies if len(body["messages"]) == 5]
        assert len(texts) == 12

    def test_at_a_rate_it_is_requests_a_second(self, told: Any) -> None:
        flags = ("--turns", "2", "--requests", "40", "--max-tokens", "2", "--burstiness", "inf")
        with FakeServer(QUICK) as server:
            _, said, _ = told("bench", server.url, "--rate", "80", *flags, "--json")
        summary = json.loads(said)["summary"]
        assert summary["num_requests"] == 40
        assert summary["offered_per_s"] == pytest.approx(80, rel=0.25)

    def test_with_prompts_of_a_length(self, told: Any, tmp_path: Path) -> None:
        out = tmp_path / "run.json"
        flags = ("--turns", "2", "--input-len", "50", "--output-len", "4", "--out", str(out))
        with FakeServer(QUICK, serve_tokenize=True) as server:
            _, said, _ = told("bench", server.url, *SHORT, *flags)
        first, second = (
            [each.prompt_tokens or 0 for each in read_trial(out).records if each.turn == turn]
            for turn in (0, 1)
        )
        assert set(first) == {50}
        assert min(second) > 54
        assert "prompts are not of" not in said

    def test_a_trace_has_none(self, told: Any) -> None:
        code, _, complaint = told("bench", "http://127.0.0.1:9", "--turns", "2", "--replay", "x")
        assert code == 2
        assert "--turns: the requests of a trace are no sessions" in complaint


class TestFields:
    def test_extra_fields_and_headers(self, told: Any, tmp_path: Path) -> None:
        out = tmp_path / "run.json"
        extra = {"top_p": 0.9, "ignore_eos": False, "max_tokens": 3}
        with FakeServer(QUICK) as server:
            code, said, complaint = told(
                "bench", server.url, *SHORT, "--out", str(out), "--extra-body", json.dumps(extra),
                "--header", "X-Tenant: blue", "--header", "Authorization:Bearer s3cret",
            )  # fmt: skip
        assert code == 0
        assert server.bodies
        for body in server.bodies:
            assert extra.items() <= body.items()
        for headers in server.headers:  # those of its other pages too
            assert (headers["x-tenant"], headers["authorization"]) == ("blue", "Bearer s3cret")
        trial = read_trial(out)
        assert trial.load["extra_body"] == extra
        assert trial.load["headers"] == ["X-Tenant", "Authorization"]
        assert "s3cret" not in said + complaint + out.read_text()

    def test_texts_without_messages(self, told: Any, tmp_path: Path) -> None:
        out = tmp_path / "run.json"
        with FakeServer(QUICK) as server:
            code, _, _ = told("bench", server.url, *SHORT, "--endpoint", "completions",
                              "--out", str(out))  # fmt: skip
        assert code == 0
        assert all(isinstance(body["prompt"], str) for body in server.bodies)
        assert not any("messages" in body for body in server.bodies)
        trial = read_trial(out)
        assert trial.load["endpoint"] == "completions"
        assert all(each.ok and each.text for each in trial.records)

    def test_of_a_comparison_too(self, told: Any) -> None:
        flags = ("--requests", "10", "--concurrency", "1", "--max-tokens", "2")
        with FakeServer(QUICK) as server, FakeServer(QUICK) as other:
            told("compare", server.url, other.url, *flags, "--endpoint", "completions",
                 "--extra-body", '{"top_p": 0.5}', "--header", "X-A: b")  # fmt: skip
        for each in (server, other):
            assert all(body["top_p"] == 0.5 and "prompt" in body for body in each.bodies)
            assert each.headers[-1]["x-a"] == "b"

    @pytest.mark.parametrize("command", ["bench", "compare"])
    @pytest.mark.parametrize(
        ("flags", "named"),
        [
            (("--extra-body", "{top_p: 1}"), "--extra-body is not JSON"),
            (("--extra-body", "[1]"), "--extra-body takes an object"),
            (("--extra-body", '{"stream": false}'), "stream cannot be an extra field"),
            (("--header", "s3cret"), "--header takes NAME:VALUE"),
            (("--header", "a b: s3cret"), "--header takes NAME:VALUE"),
            (("--header", "A: s3cret\nB: c"), "--header takes NAME:VALUE"),
            (("--endpoint", "chats"), "unknown endpoint 'chats'"),
        ],
    )
    def test_what_cannot_be_sent(
        self, told: Any, command: str, flags: tuple[str, ...], named: str
    ) -> None:
        urls = ["http://127.0.0.1:9"] * (1 if command == "bench" else 2)
        code, said, complaint = told(command, *urls, *flags)
        assert (code, said) == (2, "")
        assert named in complaint
        assert "s3cret" not in complaint
        assert complaint.count("\n") == 1
