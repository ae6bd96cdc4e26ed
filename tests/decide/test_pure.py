"""decide, stats and goodput compute: they read no clock, no file, no network."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import outdraft

ROOT = Path(outdraft.__file__).parent
PURE = [
    *(ROOT / "decide").glob("*.py"),
    *(ROOT / "stats").glob("*.py"),
    *(ROOT / f"{each}.py" for each in ("goodput", "acceptance", "step_costs", "plan/findings")),
]
# Not a list of what is forbidden: that one would never be whole.
ALLOWED = {"__future__", "collections", "dataclasses", "enum", "functools", "itertools", "math"}
ALLOWED |= {"bisect", "operator", "statistics", "typing", "numpy", "scipy"}
ALLOWED_OF_OURS = tuple(
    f"outdraft.{each}"
    for each in ("decide", "stats", "goodput", "acceptance", "step_costs", "plan.findings")
)
DOING = {"open", "print", "input", "exec", "eval", "__import__"}


def imported(tree: ast.AST) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute here"
            names.add(node.module or "")
    return names


def is_pure(module: str) -> bool:
    return module.partition(".")[0] in ALLOWED or module.startswith(ALLOWED_OF_OURS)


def test_all_of_them_are_looked_at() -> None:
    found = {str(file.relative_to(ROOT)) for file in PURE}
    assert {"decide/verdict.py", "decide/checks.py", "stats/ratios.py", "goodput.py"} <= found


@pytest.mark.parametrize("file", PURE, ids=lambda file: str(file.relative_to(ROOT)))
def test_no_io(file: Path) -> None:
    tree = ast.parse(file.read_text())
    assert {name for name in imported(tree) if not is_pure(name)} == set()
    called = {
        node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert called & DOING == set()


@pytest.mark.parametrize(
    "line",
    ["import os", "from pathlib import Path", "import aiohttp.web", "import outdraft.server"],
)
def test_what_would_be_found(line: str) -> None:
    assert [is_pure(name) for name in imported(ast.parse(line))] == [False]
