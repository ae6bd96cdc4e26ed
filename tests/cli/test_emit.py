"""`outdraft emit`, as a user types it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from outdraft.cli.main import main
from outdraft.emit import FORMS

NGRAM = '{"method": "ngram", "num_speculative_tokens": 4}'
FOR_VLLM = ["--engine", "vllm", "--engine-version", "0.32.0", "--target", "org/target"]


@pytest.fixture
def ngram(tmp_path: Path) -> str:
    file = tmp_path / "best.json"
    file.write_text(NGRAM)
    return str(file)


def test_a_command_to_paste(ngram: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["emit", "--speculation", ngram, *FOR_VLLM]) == 0
    text = capsys.readouterr().out
    assert "vllm serve org/target" in text
    assert text.startswith("# vLLM 0.32.0")


@pytest.mark.parametrize("form", FORMS)
def test_off_is_said_to_our_own_server(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Else it would choose by itself."""
    off = ["--speculation", '{"method": "off"}', "--engine", "outdraft", "--form", form]
    assert main(["emit", *off]) == 0
    text = capsys.readouterr().out
    [said] = re.findall(r'--method\W+"?(\w+)', re.sub(r"#.*", "", text).split('"why"')[0])
    assert said == "off"


def test_settings_of_the_file_are_in_what_comes_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "outdraft.toml"
    file.write_text("[serve]\ntarget = 'org/x'\nmax_num_seqs = 64\nthreads = 2\nmethod = 'off'\n")
    assert main(["emit", "--speculation", str(file), "--engine", "sglang"]) == 0
    text = capsys.readouterr().out
    assert "--max-running-requests 64" in text
    assert "org/x" in text
    words = re.sub(r"[#\s]", "", text)  # lines may end anywhere in a path
    assert f"note:asin{file}:targetorg/x,max_num_seqs64" in words
    assert f"note:nottakenfrom{file}:threads" in words


def test_a_file_is_written_whole(ngram: str, tmp_path: Path) -> None:
    out = tmp_path / "new" / "vllm.yaml"
    asked = ["emit", "--speculation", ngram, *FOR_VLLM, "--form", "k8s", "--out", str(out)]
    assert main(asked) == 0
    assert "kind: Deployment" in out.read_text()
    assert [each.name for each in out.parent.iterdir()] == ["vllm.yaml"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "--speculation is missing"),
        (["--speculation", "FILE"], "--engine is missing"),
        (["--speculation", "FILE", "--engine", "tgi"], "unknown engine 'tgi'"),
        (["--speculation", "FILE", "--engine", "vllm", "--form", "helm"], "unknown form"),
        (["--speculation", "/nowhere.json", "--engine", "vllm"], "cannot read /nowhere.json"),
        (["--speculation", "FILE", "--engine", "vllm", "--port", "0"], "--port"),
        (["--speculation", "FILE", *FOR_VLLM, "--engine-flags", "'"], "--engine-flags"),
        (["--speculation", "FILE", "--engine", "vllm", "--max-num-seqs", "0"], "--max-num-seqs"),
    ],
)
def test_mistakes_are_one_line_and_code_2(
    ngram: str, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    given = [ngram if each == "FILE" else each for each in arguments]
    assert main(["emit", *given]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


def test_a_users_own_flags_come_along(ngram: str, capsys: pytest.CaptureFixture[str]) -> None:
    flags = "--gpu-memory-utilization 0.85 --enforce-eager"
    assert main(["emit", "--speculation", ngram, *FOR_VLLM, "--engine-flags", flags]) == 0
    assert "--gpu-memory-utilization 0.85" in capsys.readouterr().out
