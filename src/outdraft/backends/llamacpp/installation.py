"""Which llama.cpp is installed and what its own parser knows, by its --version and --help."""

import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

from outdraft.backends.help_text import choices_in, help_of, options_in
from outdraft.backends.installation import Installation, VersionTable, find_executable

VARIABLE = "OUTDRAFT_LLAMA_SERVER"
PACKAGE = "xllamacpp==2026.10.11549"  # has llama.cpp's server in it; the version that was tried
_RUNNER = Path(__file__).with_name("runner.py")

_LIST = "--list-devices"
_NO_GPU = ("BLAS", "CPU")  # devices that compute on the processor

TABLE = VersionTable.beside(__file__)


def detect() -> Installation:
    """What is installed; BackendError with the install line where nothing is."""
    command = _command()
    text = help_of(command)
    first = help_of(command, "--version").strip().partition("\n")[0]
    options = options_in(text)
    is_cpu = _LIST in options and not gpus_in(help_of(command, _LIST))
    return Installation(
        version=first.removeprefix("version:").strip(),
        options=options,
        command=command,
        device="cpu" if is_cpu else "cuda",
        choices={flag: choices_in(text, flag) for flag in TABLE.choices},
    )


def gpus_in(text: str) -> list[str]:
    """The GPUs that its list of devices names, e.g. "  CUDA0: NVIDIA H200 (144040 MiB, …)"."""
    *_, listed = text.partition("Available devices:")
    names = [line.strip().partition(":")[0] for line in listed.splitlines()]
    return [each for each in names if each and each != "(none)" and each not in _NO_GPU]


def _command() -> tuple[str, ...]:
    has_binary = os.environ.get(VARIABLE) or shutil.which("llama-server")
    if not has_binary and find_spec("xllamacpp") is not None:
        return (sys.executable, str(_RUNNER))
    program = find_executable(VARIABLE, "llama-server", f"run pip install {PACKAGE}")
    return (str(program.absolute()),)
