"""Which vLLM is installed and what it can do, asked of the installation itself."""

import re
from pathlib import Path

from outdraft.backends.engine_python import ask_python, python_of
from outdraft.backends.help_text import help_of
from outdraft.backends.installation import Installation, VersionTable, find_executable
from outdraft.errors import BackendError

SUFFIX_PACKAGE = "arctic-inference"  # which vLLM's suffix method needs

# Keys of --speculative-config are options too: vLLM takes them as `--speculative-config.KEY`.
KEY = "--speculative-config."

TABLE = VersionTable.beside(__file__)
_INSTALL = "run pip install vllm (for a CPU: dev/engines/vllm.sh in the repository)"
_PROGRAM = """
import dataclasses
import importlib.util
from importlib import import_module, metadata


def first(name, *modules):
    for module in modules:
        try:
            return getattr(import_module(module), name)
        except (ImportError, AttributeError):
            pass
    raise SystemExit(f"no {name} in {modules}")


def answer():
    make = first("make_arg_parser", "vllm.entrypoints.launchers.cli_args",
                 "vllm.entrypoints.openai.cli_args")
    config = first("SpeculativeConfig", "vllm.config", "vllm.config.speculative")
    parser = first("FlexibleArgumentParser", "vllm.utils.argparse_utils", "vllm.utils")
    platform = first("current_platform", "vllm.platforms")
    return {
        "version": metadata.version("vllm"),
        "options": sorted(o for a in make(parser())._actions for o in a.option_strings),
        "keys": sorted(field.name for field in dataclasses.fields(config)),
        "is_cpu": bool(platform.is_cpu()),
        "has_suffix": importlib.util.find_spec("arctic_inference") is not None,
    }
"""


def detect() -> Installation:
    """The vLLM of $OUTDRAFT_VLLM or of the PATH."""
    program = find_executable("OUTDRAFT_VLLM", "vllm", _INSTALL)
    try:
        answer = ask_python(python_of(program), _PROGRAM, "vLLM")
    except BackendError:
        return _from_help(program)  # a build whose modules lie elsewhere still explains itself
    return Installation(
        answer["version"],
        frozenset(answer["options"]) | {KEY + key for key in answer["keys"]},
        (str(program), "serve"),
        device="cpu" if answer["is_cpu"] else "cuda",
        missing=frozenset() if answer["has_suffix"] else frozenset({SUFFIX_PACKAGE}),
    )


def _from_help(program: Path) -> Installation:
    first = help_of((str(program),), "--version")
    version = next(iter(re.findall(r"\d+\.\d+[\w.+]*", first)), TABLE.newest)
    text = help_of((str(program), "serve"), "--help=all")
    options = frozenset(re.findall(r"--[a-z0-9][a-z0-9-]*", text))
    # Its help does not list the keys of --speculative-config: those of its version.
    keys = {each for each in TABLE.installation(version).options if each.startswith(KEY)}
    device = "cpu" if "cpu" in version else "cuda"
    return Installation(version, options | keys, (str(program), "serve"), device=device)
