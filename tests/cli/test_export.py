"""`outdraft export`, as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from outdraft.cli.main import main
from outdraft.modelspec import read_modelspec
from outdraft.testing.tiny_models import tiny_gguf


@pytest.fixture
def file(tmp_path: Path) -> str:
    return str(tiny_gguf(tmp_path / "tiny.gguf"))


def test_a_folder_and_a_line(file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", file, "--out", str(tmp_path / "draft")]) == 0
    said = capsys.readouterr()
    assert "parameters" in said.out
    assert said.out.count("\n") == 1
    assert read_modelspec(tmp_path / "draft").family == "llama"


def test_json(file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "draft"
    assert main(["export", file, "--out", str(folder), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["source"], told["folder"]) == (file, str(folder))
    assert told["num_bytes"] == 2 * told["num_parameters"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "give --out DIR"),
        (["--out", "full"], "not empty"),
        (["--out", "tiny.gguf"], "is a file"),
    ],
)
def test_a_place_that_is_none(
    words: list[str],
    said: str,
    file: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("mine")
    assert main(["export", file, *words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_a_head_for_other_engines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "smollm2-135m-eagle", "--out", str(tmp_path / "head")]) == 0
    assert "MB in bfloat16" in capsys.readouterr().out
    words = ["--out", str(tmp_path / "other"), "--storage", "int3"]
    assert main(["export", "smollm2-135m-eagle", *words]) == 2
    assert "int3" in capsys.readouterr().err
