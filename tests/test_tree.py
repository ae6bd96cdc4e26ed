"""Rules about the tree itself."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from outdraft.backends.vllm.old_flags import OLD_FLAGS
from outdraft.cli.main import COMMANDS, find_command

ROOT = Path(__file__).parent.parent
MAX_LINES = 400
BANNED_MODULES = {"utils", "util", "common", "helpers", "misc", "base"}
BANNED_IN_CLASS_NAMES = ("Manager", "Factory", "Utils", "Common")
MAX_INNER_IMPORTS = 25

# Shows the help of commands one after the other, and after each which modules are imported.
HELP = """
import contextlib, sys
from outdraft.cli.main import main
for name in sys.argv[2:]:
    with contextlib.suppress(SystemExit):
        main([name, "--help"] if name != "-" else ["--help"])
    print("IMPORTED", name, sorted(set(sys.argv[1].split(",")) & set(sys.modules)))
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
    banned = re.compile(rf"^ *class (\w*(?:{'|'.join(BANNED_IN_CLASS_NAMES)})\w*)", re.MULTILINE)
    classes = [
        f"{file.relative_to(ROOT)}: {name}"
        for file in python_files()
        for name in banned.findall(file.read_text())
    ]
    assert (modules, folders, classes) == ([], [], [])


@cache
def tree_of(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


def source_files() -> list[Path]:
    return sorted((ROOT / "src").rglob("*.py"))


def inside(file: Path) -> str:
    return str(file.relative_to(ROOT / "src" / "outdraft"))


def inner_imports(file: Path) -> Iterator[tuple[str, bool]]:
    """Imports inside functions: where, and whether a comment on or above the line says why."""
    lines = file.read_text().splitlines()
    functions = [node for node in ast.walk(tree_of(file)) if is_function(node)]
    imports = {
        inner.lineno
        for function in functions
        for inner in ast.walk(function)
        if isinstance(inner, ast.Import | ast.ImportFrom)
    }
    for number in sorted(imports):
        above = lines[number - 2].strip()
        is_explained = "#" in lines[number - 1] or above.startswith("#")
        yield f"{inside(file)}:{number}", is_explained


def is_function(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def test_imports_inside_functions_are_few_and_explained() -> None:
    every = [each for file in source_files() for each in inner_imports(file)]
    unexplained = [place for place, is_explained in every if not is_explained]
    assert unexplained == []
    assert len(every) <= MAX_INNER_IMPORTS


def test_a_public_name_is_in_one_room() -> None:
    rooms: dict[str, set[str]] = {}
    for file in source_files():
        room = inside(file).split("/")[0]
        for node in tree_of(file).body:
            is_public = is_function(node) or isinstance(node, ast.ClassDef)
            if is_public and not node.name.startswith("_"):  # type: ignore[attr-defined]
                rooms.setdefault(node.name, set()).add(room)  # type: ignore[attr-defined]
    twice = {name for name, places in rooms.items() if len(places) > 1}
    assert twice == set()


def test_a_flag_is_declared_once() -> None:
    """Commands share a declaration; `replace` gives it another default or help."""
    declared: list[str] = []
    for file in source_files():
        for node in ast.walk(tree_of(file)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "Option":
                declared += [ast.unparse(node.args[0]).strip("'")]
    assert {
        flag for flag in declared if declared.count(flag) > 1 and flag.startswith("--")
    } == set()
    known = {flag for name in COMMANDS for flag in flags_of(name)}
    assert known <= {*declared, *OLD_FLAGS}


def flags_of(command: str) -> list[str]:
    """Those of the parser, without earlier names and those of every command."""
    options = {key for option in find_command(command).options for key in option.keys}
    parser = find_command(command).parser()
    flags = [flag for action in parser._actions for flag in action.option_strings]
    own = [flag for flag in flags if flag not in ("-h", "--help", "--debug")]
    assert {flag.removeprefix("--").replace("-", "_") for flag in own} <= options
    return [option.flag for option in find_command(command).options if option.flag in own]


def show_help(modules: str, *commands: str) -> str:
    words = [sys.executable, "-c", HELP, modules, *commands]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_help_imports_no_room() -> None:
    heavy = "torch,transformers,numpy,scipy,aiohttp,rich,gguf,outdraft.speculation"
    text = show_help(f"{heavy},outdraft.plan,outdraft.engine", "-")
    assert "IMPORTED - []" in text
    assert "\nexamples:\n" in text
    for name, summary in COMMANDS.items():
        assert f"\n  {name:10} {summary}\n" in text


def test_help_of_a_command_imports_no_library() -> None:
    heavy = "torch,transformers,tokenizers,huggingface_hub,numpy,scipy,gguf,safetensors"
    rest = show_help(f"{heavy},fastapi,uvicorn,aiohttp,rich,jinja2,outdraft.plan", *COMMANDS)
    for name in COMMANDS:
        text, is_there, rest = rest.partition(f"IMPORTED {name} []\n")
        assert is_there, text
        assert f"\n  outdraft {name}" in text.partition("\nexamples:\n")[2]


def test_reading_a_model_does_not_import_torch() -> None:
    code = "import sys, outdraft.catalog, outdraft.modelspec; print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "False\n"
