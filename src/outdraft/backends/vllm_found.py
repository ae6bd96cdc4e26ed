"""Which vLLM is here and what it can do: asked of the installation itself.

Without an installation, `known` says it of a version. Its table was read out of the published
wheels; an option counts from the first wheel in which it was seen.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from outdraft.backends.backend import Installed
from outdraft.backends.engine_python import ask, find_executable, python_of
from outdraft.errors import BackendError, OptionError

NEWEST = "0.32.0"
OLDEST = "0.22.0"  # its speculative config has today's keys; before, several had other names
_INSTALL = "run pip install vllm (for a CPU: dev/engines/vllm.sh in the repository)"

# Keys of --speculative-config are options too: vLLM takes them as `--speculative-config.KEY`.
KEY = "--speculative-config."

_SINCE = {
    "0.22.0": (
        "--speculative-config", "--host", "--port", "--served-model-name", "--max-model-len",
        "--max-num-seqs", "--tensor-parallel-size", "--pipeline-parallel-size", "--dtype",
        "--data-parallel-size", "--distributed-executor-backend", "--quantization",
        "--kv-cache-memory-bytes", "--enforce-eager",
        *(KEY + key for key in (
            "method", "model", "num_speculative_tokens", "draft_tensor_parallel_size",
            "quantization", "max_model_len", "prompt_lookup_min", "prompt_lookup_max",
            "draft_sample_method", "rejection_sample_method", "revision",
        )),
    ),
    "0.24.0": (KEY + "num_speculative_tokens_per_batch_size",),
    "0.26.0": ("--enable-per-request-metrics",),
    "0.29.0": ("--per-request-spec-decode-metrics",),
}  # fmt: skip

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


@dataclass(frozen=True, slots=True)
class Found:
    """A vLLM that is here, or one that is only known of."""

    program: str
    installed: Installed
    is_cpu: bool = False
    has_suffix: bool = True  # the package arctic-inference, which its suffix method needs
    is_here: bool = True

    @property
    def version(self) -> tuple[int, ...]:
        return numbers(self.installed.version)

    def has(self, option: str) -> bool:
        return option in self.installed.options


def detect() -> Found:
    """The vLLM of $OUTDRAFT_VLLM or of the PATH."""
    program = find_executable("OUTDRAFT_VLLM", "vllm", _INSTALL)
    try:
        told = ask(python_of(program), _PROGRAM, "vLLM")
    except BackendError:
        return _from_help(program)  # a build whose modules lie elsewhere still explains itself
    options = frozenset(told["options"]) | {KEY + key for key in told["keys"]}
    installed = Installed(told["version"], options)
    return Found(str(program), installed, is_cpu=told["is_cpu"], has_suffix=told["has_suffix"])


def known(version: str = NEWEST) -> Found:
    """What is known of a version that need not be installed."""
    asked = numbers(version)
    if asked < numbers(OLDEST):
        raise OptionError(
            f"vLLM {version} is not known here, the oldest one is {OLDEST}; install it and leave "
            "the version out: then its own parser is asked"
        )
    options = {
        option
        for since, some in _SINCE.items()
        if asked >= numbers(since)
        for option in some
    }  # fmt: skip
    return Found("vllm", Installed(version, frozenset(options)), is_here=False)


def numbers(version: str) -> tuple[int, ...]:
    """0.32.0+cpu → (0, 32, 0); 0.32 is 0.32.0"""
    found = re.match(r"v?(\d+(?:\.\d+)*)", version)
    if found is None:
        raise OptionError(f"{version!r} is no version; one looks like {NEWEST}")
    parts = [int(part) for part in found[1].split(".")]
    return tuple(parts + [0] * (3 - len(parts)))


def _from_help(program: Path) -> Found:
    texts = []
    for arguments in (["--version"], ["serve", "--help=all"]):
        try:
            done = subprocess.run(
                [str(program), *arguments],
                capture_output=True, text=True, timeout=180, check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BackendError(f"{program} does not run: {error}") from error
        texts.append(done.stdout)
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise BackendError(f"{program} does not run ({last[:200]})")
    version = next(iter(re.findall(r"\d+\.\d+[\w.+]*", texts[0])), NEWEST)
    options = frozenset(re.findall(r"--[a-z0-9][a-z0-9-]*", texts[1]))
    # Its help does not list the keys of --speculative-config: those of its version.
    keys = {o for o in known(version).installed.options if o.startswith(KEY)}
    return Found(str(program), Installed(version, options | keys), is_cpu="cpu" in version)
