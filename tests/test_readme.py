"""What the README tells people to type, typed: with tiny models in the place of the real ones, and
slowly as it stands there."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from urllib import request

import pytest

from outdraft.cli.main import main
from outdraft.testing.tiny_heads import tiny_head
from outdraft.testing.tiny_models import tiny_model

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


def test_a_pipe() -> None:
    [line] = [
        each for block in code_blocks("") for each in block.splitlines() if "| outdraft" in each
    ]
    command = line.replace("| outdraft", f"| {sys.executable} -m outdraft")
    done = subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "--speculative-config" in done.stdout


SMALL = ("--kv-cache-memory-bytes", "8000000")  # to clear the usual GB takes half a second


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What stands for the models that the README names."""
    root = tmp_path_factory.mktemp("tiny")
    target = tiny_model(root / "target", "llama")
    head = tiny_head(root / "head", target)
    return {"smollm2-135m": str(target), "smollm2-135m-eagle": str(head)}


def finite_commands() -> list[str]:
    return [command for command in commands() if not command.startswith("outdraft serve")]


def limited(command: str) -> list[str]:
    """The command's arguments, with an end."""
    arguments = shlex.split(command)[1:]
    is_long = arguments[0] == "generate" and "--max-tokens" not in arguments
    return [*arguments, "--max-tokens", "32"] if is_long else arguments


@pytest.mark.parametrize("command", finite_commands())
def test_command(command: str, tiny: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [tiny.get(word, word) for word in limited(command)]
    own = ["--target", tiny["smollm2-135m"], *SMALL] if arguments[0] == "generate" else []
    assert main([*arguments, *own]) == 0
    assert capsys.readouterr().out.strip()


@pytest.mark.model
@pytest.mark.parametrize(
    "command",
    [
        pytest.param(command, marks=[pytest.mark.slow] if number else [])
        for number, command in enumerate(finite_commands())
    ],
)
def test_command_on_the_real_model(command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "outdraft", *limited(command)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.mark.parametrize(
    "is_real", [False, pytest.param(True, marks=[pytest.mark.slow, pytest.mark.model])]
)
def test_serve_and_curl(is_real: bool, tiny: dict[str, str]) -> None:
    """The README's server, on a free port, asked with the README's own curl line."""
    [serve] = [command for command in commands() if command.startswith("outdraft serve")]
    [curl] = [block for block in code_blocks("sh") if block.startswith("curl ")]
    arguments = [*shlex.split(serve)[1:-1], "0"]
    own = () if is_real else ("--target", tiny["smollm2-135m"], *SMALL)
    command = [sys.executable, "-m", "outdraft", *arguments, *own]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            line = next(line for line in server.stderr if " at http://" in line)
            address = line.split(" at ")[1].strip()
            # curl's own arguments, sent without it: not every machine has one.
            _, _, _, header, _, body = shlex.split(curl.replace("\\\n", " "))
            name, _, value = header.partition(": ")
            asked = request.Request(f"{address}/v1/chat/completions", body.encode(), {name: value})
            with request.urlopen(asked, timeout=120) as response:
                answer = json.load(response)
        finally:
            server.terminate()
    assert answer["choices"][0]["message"]["content"]
    assert answer["metrics"]["speculative_decoding"]["num_spec_tokens"] == 3
    assert server.returncode == 0


def test_python_block(tiny: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    [block] = code_blocks("python")
    assert '"smollm2-135m"' in block
    exec(block.replace("smollm2-135m", tiny["smollm2-135m"]), {})
    assert capsys.readouterr().out.strip()


@pytest.mark.slow
@pytest.mark.model
def test_python_block_on_the_real_model() -> None:
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
