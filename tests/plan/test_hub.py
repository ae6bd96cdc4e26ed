"""Models by hub id, from a small hub on this machine: only what a plan needs is fetched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from outdraft.testing.tiny_models import tiny_gguf, tiny_model
from tests.catalog.fake_hub import fake_hub


def plan(folder: Path, hub: str, *words: str) -> tuple[int, str, str]:
    """In a process of its own: the library reads its address once, when it is loaded."""
    done = subprocess.run(
        [sys.executable, "-m", "outdraft", "plan", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "HF_ENDPOINT": hub, "HF_HOME": str(folder / "hf"), "HF_TOKEN": ""},
    )
    return done.returncode, done.stdout, done.stderr


def told(folder: Path, hub: str, *words: str) -> Any:
    code, out, err = plan(folder, hub, *words, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def test_a_repository_without_its_weights(tmp_path: Path) -> None:
    stored = tiny_model(tmp_path / "repo", "qwen3")
    with fake_hub(stored, "org/tiny") as (hub, log):
        found = told(tmp_path, hub, "--target", "org/tiny", "--draft", "org/tiny")
        # A second time with nobody there: from the hub's own cache.
    again = told(tmp_path, "http://127.0.0.1:9", "--target", "org/tiny")
    weights = [each for each in log if "safetensors" in each]
    assert weights, "its length was asked for"
    assert {each.split()[0] for each in weights} == {"HEAD"}
    assert found["target"]["source"] == "hub"
    assert found["target"]["bytes"]["files"] == (stored / "model.safetensors").stat().st_size
    assert found["pairing"]["same_tokenizer"] is True
    assert again["target"]["parameters"] == found["target"]["parameters"]


def test_one_gguf_file_by_its_header(tmp_path: Path) -> None:
    folder = tmp_path / "repo"
    stored = tiny_gguf(folder / "tiny.Q8_0.gguf", quant="Q8_0")
    with fake_hub(folder, "org/tiny") as (hub, _):
        found = told(tmp_path, hub, "--target", "org/tiny:tiny.Q8_0.gguf")
    assert found["target"]["source"] == "hub"
    assert found["target"]["bytes"]["files"] == pytest.approx(stored.stat().st_size, rel=0.2)
    assert found["target"]["architecture"]["num_layers"] == 2


@pytest.mark.parametrize("name", ["org/model", "org/model:file.gguf", "org/a/b"])
def test_no_hub_is_one_line_and_no_wait(tmp_path: Path, name: str) -> None:
    start = time.monotonic()
    code, out, err = plan(tmp_path, "http://127.0.0.1:9", "--target", name)
    assert (code, out) == (2, "")
    assert err.startswith("outdraft: ")
    assert err.count("\n") == 1
    assert name in err
    assert time.monotonic() - start < 30


def test_a_known_id_is_answered_without_a_hub(tmp_path: Path) -> None:
    name = "meta-llama/Llama-3.1-8B-Instruct"
    found = told(tmp_path, "http://127.0.0.1:9", "--target", name)
    assert found["target"]["parameters"] == 8_030_261_248
    assert "table's llama-3.1-8b" in found["notes"][0]
