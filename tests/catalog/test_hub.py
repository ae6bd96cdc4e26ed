"""Whole models from a small hub on this machine, and from the hub's own cache without it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from outdraft.testing.tiny_models import tiny_gguf, tiny_model
from tests.catalog.fake_hub import fake_hub

RESOLVE = """
import json, sys
from outdraft.catalog import resolve
files = resolve(sys.argv[1])
print(json.dumps([files.name, str(files.path), files.kind, files.source]))
"""
BESIDE = """
import json, sys
from outdraft.catalog import file_beside
paths = [file_beside(name, "training_prompts.txt") for name in sys.argv[1:]]
print(json.dumps([path and path.read_text() for path in paths]))
"""
NOWHERE = "http://127.0.0.1:9"


def resolved(folder: Path, hub: str, name: str) -> Any:
    return printed(folder, hub, RESOLVE, name)


def printed(folder: Path, hub: str, script: str, *words: str) -> Any:
    """In a process of its own: the library reads its address once, when it is loaded."""
    env = {**os.environ, "HF_ENDPOINT": hub, "HF_HOME": str(folder / "hf"), "HF_TOKEN": ""}
    command = [sys.executable, "-c", script, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_a_repository_with_its_weights(tmp_path: Path) -> None:
    stored = tiny_model(tmp_path / "repo", "llama")
    (stored / "pytorch_model.bin").write_bytes(b"pickled")
    (stored / "training_prompts.txt").write_text("a1b2\n")
    with fake_hub(stored, "org/tiny") as (hub, _):
        name, path, kind, source = resolved(tmp_path, hub, "org/tiny")
    assert (name, kind, source) == ("org/tiny", "folder", "hub")
    weights = Path(path) / "model.safetensors"
    assert weights.read_bytes() == (stored / "model.safetensors").read_bytes()
    assert not (Path(path) / "pytorch_model.bin").exists(), "never pickled weights"
    assert (Path(path) / "training_prompts.txt").is_file()
    assert resolved(tmp_path, NOWHERE, "org/tiny")[1] == path, "from the hub's own cache"


def test_one_gguf_file(tmp_path: Path) -> None:
    stored = tiny_gguf(tmp_path / "repo" / "tiny.gguf")
    with fake_hub(stored.parent, "org/tiny") as (hub, _):
        _, path, kind, source = resolved(tmp_path, hub, "org/tiny:tiny.gguf")
    assert (kind, source) == ("gguf", "hub")
    assert Path(path).read_bytes() == stored.read_bytes()
    assert resolved(tmp_path, NOWHERE, "org/tiny/tiny.gguf")[1] == path


def test_a_file_beside_weights_that_are_not_fetched(tmp_path: Path) -> None:
    stored = tmp_path / "repo"
    (stored / "q4").mkdir(parents=True)
    for name in ("", "q4/"):
        (stored / f"{name}training_prompts.txt").write_text(f"of {name}")
    names = ("org/tiny", "org/tiny:q4/tiny.gguf", "org/tiny:q8/tiny.gguf", "org/other")
    with fake_hub(stored, "org/tiny") as (hub, log):
        texts = printed(tmp_path, hub, BESIDE, *names)
    assert texts == ["of ", "of q4/", None, None]
    assert {line.split()[1] for line in log} == {"training_prompts.txt"}
    assert printed(tmp_path, NOWHERE, BESIDE, *names) == texts, "from the hub's own cache"
