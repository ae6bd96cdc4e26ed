"""`outdraft tune`: a real search on a tiny model, killed and gone on with; bad input."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from outdraft.cli.main import main
from outdraft.testing.tiny_models import tiny_model
from outdraft.tune.results import results_from_json

OUTDRAFT = (sys.executable, "-m", "outdraft")


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_model(tmp_path_factory.mktemp("tiny"), "llama"))


def tune(target: str, out: Path, *flags: str) -> list[str]:
    return [
        *OUTDRAFT, "tune", "--target", target, "--methods", "ngram", "--k", "2,4",
        "--concurrency", "2", "--category", "creative", "--max-tokens", "8", "--budget", "60s",
        "--threads", "1",
        "--out", str(out), *flags,
    ]  # fmt: skip


@pytest.mark.slow
def test_killed_and_gone_on_with(target: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    journal = out / "journal.jsonl"
    with subprocess.Popen(tune(target, out), stderr=subprocess.DEVNULL) as process:
        until = time.monotonic() + 90
        while not journal.exists() or journal.read_bytes().count(b"\n") < 3:
            assert time.monotonic() < until
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    before = journal.read_bytes()
    assert [each.name for each in out.iterdir() if each.suffix == ".json"] == []
    done = subprocess.run(
        tune(target, out), capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stderr
    assert f"going on with the run in {out}" in done.stderr
    whole = before[: before.rfind(b"\n") + 1]
    assert journal.read_bytes().startswith(whole), "nothing is measured twice"
    last = done.stdout.splitlines()[-1]
    assert last.startswith("best: ngram k=")
    assert "over off" in last
    results = results_from_json(json.loads((out / "results.json").read_text()))
    assert results.num_requests > 0
    assert {arm.name for arm in results.loads[0].arms} == {"off", "ngram k=2", "ngram k=4"}
    assert "<html" in (out / "report.html").read_text()
    assert "[serve]" in (out / "outdraft.toml").read_text()


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*words: str) -> tuple[int, str, str]:
        code = main(["tune", *words])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--backend", "vlm"), "unknown backend 'vlm' (did you mean 'vllm'?)"),
        (("--methods", "ngramm"), "did you mean 'ngram'"),
        (("--k", "0..3"), "--k '0..3': draft lengths are 1 to 64"),
        (("--k", "many"), "write e.g. 2..8"),
        (("--budget", "soon"), "--budget 'soon' is no time; write e.g. 90s"),
        (("--margin", "5"), "--margin lies between 0 and 1, got 5"),
        (("--concurrency", "1,1"), "names a load twice"),
        (("--concurrency", "0"), "no list of numbers above 0"),
        (("--objective", "speed"), "unknown objective 'speed'"),
        (("--objective", "goodput"), "--objective goodput needs --slo"),
        (("--slo", "ttft"), "--slo 'ttft'"),
        (("--draft-quantization", "int3"), "unknown draft quantization 'int3'"),
        (("--acceptance", "always"), "unknown verification rule 'always'"),
        (("--temperature", "0:1%"), "the shares sum to 1 %"),
        (("--gpu", "h1000"), "unknown GPU 'h1000'"),
        (("--draft", "nowhere/at/all"), "nowhere/at/all"),
        (("--methods", "draft_model", "--target", "./none.gguf"), "none.gguf"),
        (("--config", "none.toml"), "cannot read none.toml"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(
    told: Any, tmp_path: Path, words: tuple[str, ...], named: str
) -> None:
    out = tmp_path / "out"
    code, said, complaint = told("--out", str(out), *words)
    assert (code, said) == (2, "")
    assert complaint.startswith("outdraft: ")
    assert complaint.count("\n") == 1, complaint
    assert named in complaint
    assert not out.exists()


def test_an_empty_prompts_file(told: Any, tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    code, _, complaint = told("--out", str(tmp_path / "out"), "--prompts", str(empty))
    assert code == 2
    assert "has no entries" in complaint


def test_prompts_that_have_changed_are_another_run(told: Any, target: str, tmp_path: Path) -> None:
    from argparse import Namespace

    from outdraft.cli.config_file import fill
    from outdraft.cli.tune_settings import TUNE, settings_of
    from outdraft.tune.journal import Journal

    prompts, out = tmp_path / "prompts.jsonl", tmp_path / "out"
    flags = ("--target", target, "--methods", "ngram", "--prompts", str(prompts), "--out", str(out))
    prompts.write_text('{"prompt": "Tell me of ferries."}\n')
    args = Namespace(**dict.fromkeys((option.key for option in TUNE), None))
    args.target, args.methods, args.prompts = target, "ngram", str(prompts)
    fill(args, TUNE, None, "tune")
    with Journal(out / "journal.jsonl", settings_of(args).header):
        pass
    args.objective, args.margin = "tpot", 0.05
    with Journal(out / "journal.jsonl", settings_of(args).header):
        pass  # what only judges may change
    prompts.write_text('{"prompt": "Tell me of harbours."}\n')
    code, _, complaint = told(*flags)
    assert code == 2
    assert f"{out} holds a run with another digest of the prompts" in complaint


def test_a_folder_of_another_run_is_refused(told: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "journal.jsonl").write_text('{"schema":1,"target":"another"}\n')
    code, _, complaint = told("--out", str(out), "--methods", "ngram")
    assert code == 2
    assert f"{out} holds a run with another target" in complaint
