"""Which llama.cpp is here and what its own parser knows: its --version and --help are read."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from outdraft.backends import help_text
from outdraft.backends.engine_python import find_executable

VARIABLE = "OUTDRAFT_LLAMA_SERVER"
PACKAGE = "xllamacpp==2026.10.11549"  # carries llama.cpp's server; the version that was tried
_RUNNER = Path(__file__).with_name("llamacpp_runner.py")


@dataclass(frozen=True, slots=True)
class Found:
    version: str
    options: frozenset[str]
    spec_types: tuple[str, ...]  # values of --spec-type; () where it has none
    split_modes: tuple[str, ...] = ()
    command: tuple[str, ...] = ("llama-server",)
    is_here: bool = False  # else for another machine: no file is looked for


def detect(command: tuple[str, ...] | None = None) -> Found:
    """What is installed, or `command`. BackendError with the install line where there is none."""
    command = command or _command()
    text = help_text.said_by(command, "--help")
    first = help_text.said_by(command, "--version").strip().partition("\n")[0]
    return Found(
        version=first.removeprefix("version:").strip(),
        options=help_text.options_in(text),
        spec_types=help_text.choices_in(text, "--spec-type"),
        split_modes=help_text.choices_in(text, "--split-mode"),
        command=command,
        is_here=True,
    )


def _command() -> tuple[str, ...]:
    has_binary = os.environ.get(VARIABLE) or shutil.which("llama-server")
    if not has_binary and find_spec("xllamacpp") is not None:
        return (sys.executable, str(_RUNNER))
    return (
        str(find_executable(VARIABLE, "llama-server", f"run pip install {PACKAGE}").absolute()),
    )


# The newest version that was read, for a command that is to run somewhere else.
NEWEST = Found(
    version="0.6.0-dev (xllamacpp 2026.10.11549)",
    options=frozenset(
        {
            *("-m", "-c", "-np", "-t", "-tb", "--host", "--port", "--alias", "--metrics"),
            *("--kv-unified", "--split-mode", "--spec-type", "--spec-default"),
            *("--spec-draft-model", "--model-draft", "-md", "--spec-draft-n-max"),
            *("--spec-draft-n-min", "--spec-draft-p-min", "--spec-draft-sampling"),
            *(
                f"--spec-ngram-{kind}-{size}"
                for kind in ("simple", "map-k", "map-k4v")
                for size in ("size-n", "size-m", "min-hits")
            ),
        }
    ),
    spec_types=(
        *("none", "draft-simple", "draft-eagle3", "draft-mtp", "draft-dflash", "draft-dspark"),
        *("ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache"),
    ),
    split_modes=("none", "layer", "row", "tensor"),
)
