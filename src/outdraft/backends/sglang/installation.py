"""Which SGLang is installed and which flags its own parser knows."""

from outdraft.backends.engine_python import ask_python, python_of
from outdraft.backends.installation import Installation, VersionTable, find_executable

TABLE = VersionTable.beside(__file__)
_PROGRAM = """
import argparse
from importlib import metadata


def answer():
    import torch
    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    hip = torch.version.hip is not None
    return {
        "version": metadata.version("sglang"),
        "options": sorted(o for a in parser._actions for o in a.option_strings),
        "device": "hip" if hip else "cuda" if torch.cuda.is_available() else "cpu",
    }
"""


def detect() -> Installation:
    """The SGLang of $OUTDRAFT_SGLANG (its `sglang` or its python) or of the PATH."""
    python = python_of(find_executable("OUTDRAFT_SGLANG", "sglang", "run pip install sglang"))
    answer = ask_python(python, _PROGRAM, "SGLang")
    return Installation(
        answer["version"],
        frozenset(answer["options"]),
        (str(python), *TABLE.command[1:]),
        device=answer["device"],
    )
