"""Where the real engines are: $OUTDRAFT_…, else the environments that dev/engines makes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def program(variable: str, place: str, script: str) -> Path:
    """The engine's program; skips where it is not set up."""
    found = Path(os.environ.get(variable) or ROOT / ".engines" / place)
    if not found.is_file():
        pytest.skip(f"no {found}; dev/engines/{script} makes it, or set {variable}")
    return found


def vllm() -> Path:
    return program("OUTDRAFT_VLLM", "vllm/bin/vllm", "vllm.sh")


def llama_server() -> Path:
    return program("OUTDRAFT_LLAMA_SERVER", "llamacpp/bin/llama-server", "llamacpp.sh")


def sglang() -> Path:
    return program("OUTDRAFT_SGLANG", "sglang/bin/sglang", "sglang.sh")


def smollm2_folder(num_layers: int | None = None) -> Path:
    """SmolLM2 as a Hugging Face folder, made once; with fewer layers it is a poor draft."""
    models = Path(os.environ.get("OUTDRAFT_ENGINE_MODELS") or ROOT / ".engines" / "models")
    folder = models / ("smollm2" if num_layers is None else f"smollm2-{num_layers}-layers")
    if not (folder / "config.json").is_file():
        layers = [] if num_layers is None else ["--layers", str(num_layers)]
        maker = ROOT / "dev" / "engines" / "hf_folder.py"
        subprocess.run([sys.executable, str(maker), str(folder), *layers], check=True)
    return folder
