"""Which SGLang is here and which flags its own parser knows.

Without an installation, `known` says it of a version, from a table read out of the published
wheels; an option counts from the first wheel in which it was seen.
"""

from __future__ import annotations

from dataclasses import dataclass

from outdraft.backends.backend import Installed
from outdraft.backends.engine_python import ask, find_executable, python_of
from outdraft.backends.vllm_found import numbers
from outdraft.errors import OptionError

NEWEST = "0.5.23"
OLDEST = "0.5.12"
_INSTALL = "run pip install sglang"

_SINCE = {
    "0.5.12": (
        "--model-path", "--host", "--port", "--served-model-name", "--context-length", "--dtype",
        "--max-running-requests", "--tp-size", "--pp-size", "--nnodes", "--node-rank",
        "--dist-init-addr", "--quantization", "--enable-metrics", "--max-total-tokens",
        "--speculative-algorithm", "--speculative-draft-model-path", "--speculative-num-steps",
        "--speculative-eagle-topk", "--speculative-num-draft-tokens",
        "--speculative-draft-model-quantization", "--speculative-adaptive",
        "--speculative-adaptive-config", "--speculative-ngram-min-bfs-breadth",
        "--speculative-ngram-max-bfs-breadth", "--speculative-ngram-max-trie-depth",
        "--speculative-accept-threshold-single",
    ),
    "0.5.18": ("--speculative-use-rejection-sampling",),
}  # fmt: skip

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


@dataclass(frozen=True, slots=True)
class Found:
    """An SGLang that is here, or one that is only known of."""

    python: str
    installed: Installed
    device: str = "cuda"  # cuda, hip or cpu
    is_here: bool = True

    @property
    def version(self) -> tuple[int, ...]:
        return numbers(self.installed.version)

    def has(self, option: str) -> bool:
        return option in self.installed.options


def detect() -> Found:
    """The SGLang of $OUTDRAFT_SGLANG (its `sglang` or its python) or of the PATH."""
    python = python_of(find_executable("OUTDRAFT_SGLANG", "sglang", _INSTALL))
    told = ask(python, _PROGRAM, "SGLang")
    installed = Installed(told["version"], frozenset(told["options"]))
    return Found(str(python), installed, device=told["device"])


def known(version: str = NEWEST) -> Found:
    """What is known of a version that need not be installed."""
    asked = numbers(version)
    if asked < numbers(OLDEST):
        raise OptionError(
            f"SGLang {version} is not known here, the oldest one is {OLDEST}; install it and leave "
            "the version out: then its own parser is asked"
        )
    options = {
        option
        for since, some in _SINCE.items()
        if asked >= numbers(since)
        for option in some
    }  # fmt: skip
    return Found("python3", Installed(version, frozenset(options)), is_here=False)
