"""The other blocks of docs/: Python, TOML and calls of other programs."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from outdraft.cli.main import find_command, main
from outdraft.cli.speculative_config import speculation_in_any_form
from tests.docs.world import World, ask, serving, world_in
from tests.docs.written import DOCS, PAGES, SHELLS, blocks, name_of


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world_in(tmp_path_factory.mktemp("reader")) as world:
        yield world


# By page and number of the block: what stands for what it names, and what it must print.
PYTHON = {
    ("backends.md", 0): ({"llamacpp": "outdraft", "smollm2-135m": "./my-model"}, "http://"),
    ("backends.md", 1): ({"http://localhost:8000": "URL"}, "vllm"),
    ("emit.md", 0): ({}, "--speculative-config"),
    ("planning.md", 0): ({}, "True"),
}


def python_blocks() -> list[tuple[str, int]]:
    return [
        (name_of(page), number)
        for page in PAGES
        if name_of(page) != "README.md"  # tests/test_readme.py
        for number in range(len(blocks(page, ("python",))))
    ]


def test_no_block_of_python_is_forgotten() -> None:
    assert set(python_blocks()) == set(PYTHON)


@pytest.mark.parametrize(("page", "number"), python_blocks())
def test_python(page: str, number: int, world: World, capsys: pytest.CaptureFixture[str]) -> None:
    code = blocks(DOCS / page, ("python",))[number]
    stands_for, printed = PYTHON[page, number]
    for word, other in stands_for.items():
        assert word in code
        code = code.replace(word, world.url("http://localhost:8000") if other == "URL" else other)
    exec(code, {})
    assert printed in capsys.readouterr().out


def test_the_speculation_in_toml(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    [block] = blocks(DOCS / "emit.md", ("toml",))
    file = world.folder / "shown.toml"
    file.write_text(block)
    for engine in ("vllm", "outdraft"):
        words = ["emit", "--speculation", str(file), "--engine", engine, "--target", "org/target"]
        assert main(words) == 0
        assert "meta-llama/Llama-3.2-1B-Instruct" in capsys.readouterr().out


def other_programs() -> list[list[str]]:
    """Calls of other programs that a server of ours, or a file of ours, is for."""
    lines = [
        line
        for page in PAGES
        for block in blocks(page, SHELLS)
        for line in block.replace("\\\n", " ").splitlines()
    ]
    return [shlex.split(line) for line in lines if line.split(" ")[0] in ("vllm", "curl", "jq")]


def test_what_vllm_is_told_is_understood_by_our_own_server(world: World) -> None:
    found = [words for words in other_programs() if words[0] == "vllm"]
    assert found
    for words in found:
        config = words[words.index("--speculative-config") + 1]
        args = find_command("serve").parse(["--speculative-config", config])
        assert speculation_in_any_form(args, print).draft == "./draft"


def test_the_admin_path(world: World) -> None:
    [words] = [each for each in other_programs() if "/admin/" in " ".join(each)]
    path = next(word for word in words if "/admin/" in word).partition(":8000")[2]
    body = json.loads(words[words.index("-d") + 1])
    key = "an operator's"
    with serving(world, ["serve", "--method", "ngram", "--k", "5", "--admin-key", key]) as url:
        told = ask(f"{url}{path}", body, Authorization=f"Bearer {key}")
    assert told["max_k"] == body["max_k"] == 2


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
def test_what_jq_makes_of_a_watch(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    [words] = [each for each in other_programs() if each[0] == "jq"]
    main(
        [
            "watch",
            world.url("http://127.0.0.1:8000"),
            "--for",
            "400ms",
            "--interval",
            "200ms",
            "--json",
        ]
    )
    said = capsys.readouterr().out
    done = subprocess.run(words[:2], input=said, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["replicas"]
