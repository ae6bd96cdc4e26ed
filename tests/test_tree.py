"""Rules about the tree itself."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MAX_LINES = 400
BANNED_MODULES = {"utils", "util", "common", "helpers", "misc", "base"}
BANNED_IN_CLASS_NAMES = ("Manager", "Factory", "Utils", "Common")

HELP = """
import sys
from outdraft.cli.main import main
sys.argv = ["outdraft", "--help"]
try:
    main()
except SystemExit:
    pass
heavy = sorted({"torch", "transformers"} & set(sys.modules))
print("HEAVY", heavy)
"""


def python_files() -> list[Path]:
    rooms = [ROOT / room for room in ("src", "tests", "benchmarks")]
    return [file for room in rooms for file in sorted(room.rglob("*.py"))]


def test_no_file_is_over_the_cap() -> None:
    lengths = {
        str(file.relative_to(ROOT)): len(file.read_text().splitlines()) for file in python_files()
    }
    assert {name: n for name, n in lengths.items() if n > MAX_LINES} == {}


def test_names_say_something() -> None:
    modules = [file for file in python_files() if file.stem.lower() in BANNED_MODULES]
    folders = [file for file in python_files() if BANNED_MODULES & set(file.parent.parts)]
    classes = [
        f"{file.relative_to(ROOT)}: {node.name}"
        for file in python_files()
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ClassDef)
        and any(word in node.name for word in BANNED_IN_CLASS_NAMES)
    ]
    assert (modules, folders, classes) == ([], [], [])


@pytest.fixture(scope="module")
def help_output() -> str:
    done = subprocess.run(
        [sys.executable, "-c", HELP], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_help_does_not_import_torch(help_output: str) -> None:
    assert "HEAVY []" in help_output


def test_reading_a_model_does_not_import_torch() -> None:
    code = "import sys, outdraft.catalog, outdraft.modelspec; print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "False\n"


def test_help_shows_examples(help_output: str) -> None:
    assert "examples" in help_output.lower()
