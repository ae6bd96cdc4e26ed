"""`outdraft report`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from outdraft.cli.main import main
from outdraft.whole_file import write_json
from tests.report.sample_results import sample_results


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_json(tmp_path / "results.json", sample_results().to_json())
    return tmp_path


def test_the_path_is_printed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(folder)]) == 0
    assert capsys.readouterr().out == f"{folder / 'report.html'}\n"
    assert (folder / "report.html").read_text().startswith("<!doctype html>")


def test_another_place_and_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = folder / "new" / "page.html"
    assert main(["report", str(folder), "--out", str(out), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["report"] == str(out)
    assert told["best"].startswith("best: draft_model smollm2-135m-draft k=4 int8 · 1.97x [")
    assert out.exists()
    assert not (folder / "report.html").exists()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot read"),
        ("{", "is damaged"),
        ('{"kind": "tune", "schema": 99}', "schema 99; this version reads"),
        ('{"kind": "bench", "schema": 1}', "kind 'bench'"),
    ],
)
def test_one_line_and_code_2(
    content: str | None, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (tmp_path / "results.json").write_text(content)
    assert main(["report", str(tmp_path)]) == 2
    caught = capsys.readouterr()
    assert caught.out == ""
    assert caught.err.startswith("outdraft: ")
    assert caught.err.count("\n") == 1
    assert said in caught.err
    assert not (tmp_path / "report.html").exists()


def test_without_torch(folder: Path) -> None:
    code = (
        "import sys; from outdraft.cli.main import main; "
        f"main(['report', {str(folder)!r}]); print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.endswith("False\n")
