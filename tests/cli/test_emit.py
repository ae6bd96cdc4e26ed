"""`outdraft emit`, as a user types it."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from outdraft.cli.emit import read_speculation
from outdraft.cli.main import main
from outdraft.errors import OptionError
from outdraft.speculation import Speculation

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


def test_a_file_is_written_whole(ngram: str, tmp_path: Path) -> None:
    out = tmp_path / "new" / "vllm.yaml"
    asked = ["emit", "--speculation", ngram, *FOR_VLLM, "--form", "k8s", "--out", str(out)]
    assert main(asked) == 0
    assert "kind: Deployment" in out.read_text()
    assert [each.name for each in out.parent.iterdir()] == ["vllm.yaml"]


def test_json_toml_standard_input_and_a_file_of_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = Speculation("ngram", k=4)
    toml = tmp_path / "best.toml"
    toml.write_text('method = "ngram"\nk = 4\n')
    assert read_speculation(str(toml)) == wanted
    inner = tmp_path / "inner.json"
    inner.write_text(json.dumps({"speculation": json.loads(NGRAM), "arm": "x"}))
    assert read_speculation(str(inner)) == wanted
    served = tmp_path / "outdraft.toml"
    served.write_text(f"[serve]\ntarget = 'x'\nspeculative_config = {json.dumps(NGRAM)}\n")
    assert read_speculation(str(served)) == wanted
    served.write_text("[serve]\ntarget = 'x'\n")
    assert read_speculation(str(served)).is_off
    monkeypatch.setattr("sys.stdin", io.StringIO(NGRAM))
    assert read_speculation("-") == wanted


@pytest.mark.parametrize("text", ["{", "method = ", "[1, 2]", '"ngram"'])
def test_what_is_no_speculation_is_said_in_a_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "bad"
    file.write_text(text)
    with pytest.raises(OptionError) as refused:
        read_speculation(str(file))
    assert "bad" in str(refused.value)
    assert "\n" not in str(refused.value)


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
