"""Asking another interpreter."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from outdraft.backends.engine_python import ask_python, python_of
from outdraft.errors import BackendError

PYTHON = Path(sys.executable)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTDRAFT_CACHE", str(tmp_path / "cache"))


def test_an_answer_is_found_among_other_words() -> None:
    program = (
        "print('warming up')\ndef answer():\n    print('noise')\n    return {'version': '7'}\n"
    )
    assert ask_python(PYTHON, program, "x") == {"version": "7"}


def test_an_answer_is_kept_until_the_environment_changes(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    program = f"def answer():\n    open({str(marks)!r}, 'a').write('x')\n    return {{}}\n"
    python = tmp_path / "env" / "bin" / "python"
    site = tmp_path / "env" / "lib" / "python3.99" / "site-packages"
    python.parent.mkdir(parents=True)
    site.mkdir(parents=True)
    python.symlink_to(PYTHON)
    ask_python(python, program, "x")
    ask_python(python, program, "x")
    assert marks.read_text() == "x"
    (site / "new_package").mkdir()
    ask_python(python, program, "x")
    assert marks.read_text() == "xx"


def test_what_it_died_of_is_said_in_a_line() -> None:
    with pytest.raises(BackendError, match="no_such_module") as failed:
        ask_python(PYTHON, "import no_such_module\n", "x")
    assert "\n" not in str(failed.value)


def test_an_environment_whose_python_is_gone_is_said_in_a_line(tmp_path: Path) -> None:
    python = tmp_path / "env" / "bin" / "python"
    (tmp_path / "env" / "lib" / "python3.99" / "site-packages").mkdir(parents=True)
    with pytest.raises(BackendError, match="cannot run"):
        ask_python(python, "", "x")


def test_a_script_names_its_interpreter(tmp_path: Path) -> None:
    script = tmp_path / "vllm"
    script.write_text(f"#!{PYTHON}\n")
    assert python_of(script) == PYTHON
    script.write_text(f"#!/bin/sh\n'''exec' {PYTHON} \"$0\" \"$@\"\n")
    assert python_of(script) == PYTHON
    script.write_text("#!/bin/sh\necho hello\n")
    with pytest.raises(BackendError, match="which Python"):
        python_of(script)
    (tmp_path / "python").symlink_to(PYTHON)
    assert python_of(script) == tmp_path / "python"
