"""`outdraft bench --quick`, on a model of a few layers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from outdraft.cli.main import main
from outdraft.engine.native.library import library
from outdraft.testing.tiny_models import tiny_gguf


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_gguf(tmp_path_factory.mktemp("tiny") / "tiny.gguf", context=256)


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str], model: Path) -> Any:
    def run(*words: str) -> tuple[int, str, str]:
        code = main(["bench", "--quick", "--target", str(model), "--threads", "1", *words])
        caught = capsys.readouterr()
        return code, caught.out, caught.err

    return run


def test_a_row_for_each_length(told: Any) -> None:
    code, said, complaint = told("--lengths", "8,64", "--repetitions", "2")
    assert (code, complaint) == (0, "")
    head, *rows, on, last = said.splitlines()
    assert " ".join(head.split()) == "prompt tokens read tokens/s then 32 written tokens/s runs"
    assert [row.split()[0] for row in rows] == ["8", "64"]
    assert [row.split()[-1] for row in rows] == ["2", "2"]
    assert re.search(
        r"dtype auto, quantization none, cpu, 1 thread, (compiled|torch's) kernels", on
    )
    assert last == "speculation off, one text at a time; median [lowest, highest]"


def test_as_json(told: Any, model: Path) -> None:
    code, said, _ = told("--lengths", "16", "--repetitions", "3", "--json")
    found = json.loads(said)
    assert code == 0
    assert (found["target"], found["threads"]) == (str(model), 1)
    assert found["cores"] >= 1
    assert found["compiled"] is (library() is not None)
    [length] = found["lengths"]
    assert (length["prompt_tokens"], length["written_tokens"], length["runs"]) == (16, 32, 3)
    for speed in (length["reading"], length["writing"]):
        assert 0 < speed["lowest"] <= speed["median"] <= speed["highest"]


def test_a_length_that_does_not_fit_is_said(told: Any) -> None:
    code, said, complaint = told("--lengths", "8,250", "--repetitions", "1")
    assert code == 0
    assert [line.split()[0] for line in said.splitlines()[1:2]] == ["8"]
    assert complaint == (
        "note: a prompt of 250 tokens leaves no room to write in a context of 256\n"
    )


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("bench", "--quick", "http://127.0.0.1:9"), "leave the URL out"),
        (("bench",), "no URL: give the address of a server, or --quick for our own engine"),
        (
            ("bench", "--quick", "--concurrency", "8", "--page", "x.html"),
            "--concurrency and --page would change nothing with --quick; leave it out",
        ),
        (("bench", "http://x", "--threads", "2"), "--threads would change nothing without --quick"),
        (("bench", "--quick", "--lengths", "0"), "--lengths must be at least 1, got 0"),
        (("bench", "--quick", "--lengths", "8,8"), "--lengths '8,8' names one twice"),
    ],
)
def test_what_cannot_be(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], named: str
) -> None:
    assert main([*words]) == 2
    assert named in capsys.readouterr().err


def test_help_shows_the_default_as_it_would_be_given(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["bench", "--help"])
    assert "(default: 16,128,512)" in " ".join(capsys.readouterr().out.split())
