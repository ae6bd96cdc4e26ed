"""The image of the CPU engine, by its text: no test has a Docker engine."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import zipfile
from fnmatch import fnmatch
from pathlib import Path

import pytest

from outdraft.backends.lookup import backend_elsewhere
from outdraft.catalog import default_cache_dir, shipped_draft
from outdraft.cli.main import find_command
from outdraft.version import __version__
from tests.test_packaging import NATIVE, ROOT, libraries

TEXT = (ROOT / "Dockerfile").read_text()
LINES = [line.partition(" ") for line in TEXT.splitlines() if line and not line.startswith("#")]
DOCS = (ROOT / "docs" / "server.md").read_text()


def after(word: str) -> list[str]:
    """What follows an instruction, by its place in the file."""
    return [rest for first, _, rest in LINES if first == word]


def served(words: list[str]) -> dict[str, object]:
    assert words[0] == "serve"
    return vars(find_command("serve").parse(words[1:]))


def test_it_serves_the_default_target_with_its_head_to_the_outside() -> None:
    [entry], [command] = map(json.loads, after("ENTRYPOINT")), map(json.loads, after("CMD"))
    assert entry == ["outdraft"]
    options = served(command)
    assert options["host"] == "0.0.0.0"
    assert shipped_draft(str(options["target"]), "eagle") == "smollm2-135m-eagle", "auto takes it"
    assert options["method"] is None, "so that the machine decides"
    assert str(options["port"]) == after("EXPOSE")[0] == "8000"


def test_models_are_kept_in_the_volume(monkeypatch: pytest.MonkeyPatch) -> None:
    env = dict(re.findall(r"(\w+)=(\S+)", after("ENV")[0]))
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    [volume] = after("VOLUME")
    assert str(default_cache_dir()) == volume
    assert env["HF_HOME"].startswith(f"{volume}/")
    user = after("USER")[0]
    assert any(f"chown {user} {volume}" in step for step in after("RUN"))


def test_the_container_of_emit_is_this_one() -> None:
    container = backend_elsewhere("outdraft").container()
    assert container.image in container.reason
    assert container.cache == after("VOLUME")[0]
    assert not container.host_cache, "it is not root"


def test_its_torch_is_that_of_make_setup() -> None:
    [version] = re.findall(r"torch==(\S+)", TEXT)
    assert re.search(rf"^TORCH +\?= {re.escape(version)}$", (ROOT / "Makefile").read_text(), re.M)


def test_what_the_docs_say_about_it() -> None:
    assert f"docker build -t outdraft:{__version__} ." in DOCS
    runs = re.findall(r"docker run .*?outdraft:(\S+) ?(.*?)$", DOCS.replace("\\\n", ""), re.M)
    assert [version for version, _ in runs] == [__version__] * 2
    options = served(runs[1][1].split())
    assert options["host"] == "0.0.0.0"
    assert f"--stop-timeout {float(str(options['drain_timeout'])) + 10:.0f}" in DOCS


def copied() -> list[tuple[Path, Path]]:
    """(file of the tree, where the build sees it), as `.dockerignore` and COPY have it."""
    _, *rules = (ROOT / ".dockerignore").read_text().splitlines()
    assert rules[0] == "*", "all that is not named is left out"
    kept = [rule[1:] for rule in rules if rule.startswith("!")]
    left_out = [rule.removeprefix("**/") for rule in rules[1:] if not rule.startswith("!")]
    found = []
    for words in (rest.split() for rest in after("COPY")):
        for source in words[:-1]:
            assert source in kept, f"{source} is copied and left out"
            whole = ROOT / source
            for file in [whole] if whole.is_file() else sorted(whole.rglob("*")):
                parts = file.relative_to(ROOT).parts
                if file.is_file() and not any(fnmatch(p, r) for p in parts for r in left_out):
                    at = Path(words[-1], file.name) if whole.is_file() else file.relative_to(ROOT)
                    found.append((file, at))
    return found


def test_the_build_sees_sources_and_drafts_and_nothing_that_was_built() -> None:
    names = {str(at) for _, at in copied()}
    assert {
        "pyproject.toml",
        "setup.py",
        "dev/build_backend.py",
        "src/outdraft/__init__.py",
    } <= names
    assert "src/outdraft/catalog/drafts/smollm2-135m-eagle/config.json" in names
    assert any(name.startswith(f"src/{NATIVE}/") and name.endswith(".c") for name in names)
    assert not [name for name in names if name.endswith((".so", ".pyc")) or "tests" in name]


@pytest.mark.slow
def test_the_first_stage_builds_a_wheel(tmp_path: Path) -> None:
    """Its RUN line as it stands, in a folder that holds what COPY puts there."""
    tree, wheels = tmp_path / "tree", tmp_path / "wheels"
    for file, at in copied():
        (tree / at).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, tree / at)
    step = after("RUN")[0].replace("/wheels", str(wheels))
    assert step.startswith("pip wheel ")
    subprocess.run(f"{sys.executable} -m {step}", shell=True, check=True, cwd=tree, timeout=600)
    [wheel] = wheels.iterdir()
    assert libraries(wheel)
    names = zipfile.ZipFile(wheel).namelist()
    assert "outdraft/catalog/drafts/smollm2-135m-eagle/config.json" in names
