"""What the README tells people to type, typed."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def code_blocks(language: str) -> list[str]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return [block for name, block in fenced if name == language]


def commands() -> list[str]:
    lines = [line for block in code_blocks("") for line in block.splitlines()]
    return [line for line in lines if line.startswith("outdraft ")]


def test_there_is_something_to_type() -> None:
    assert len(commands()) >= 3
    assert len(code_blocks("python")) == 1


@pytest.mark.model
@pytest.mark.parametrize("command", commands())
def test_command(command: str) -> None:
    arguments = shlex.split(command)[1:]
    limit = [] if "--max-tokens" in arguments else ["--max-tokens", "32"]
    done = subprocess.run(
        [sys.executable, "-m", "outdraft", *arguments, *limit],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.mark.model
def test_python_block() -> None:
    done = subprocess.run(
        [sys.executable, "-c", code_blocks("python")[0]],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in set(re.findall(r"`?make ([a-z-]+)", README)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
