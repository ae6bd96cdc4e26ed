"""The seam to an engine: what a trial asks of every one of them.

A backend knows one engine: which version is installed, which flags make a Speculation, what the
engine counts. It starts nothing itself; `process.py` starts what `launch` returns, for all of
them in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from outdraft.records import AcceptanceCounts
from outdraft.speculation import Speculation


@dataclass(frozen=True, slots=True)
class Serving:
    """A target to be served, in words that every engine understands."""

    target: str  # catalog name, hub id, folder or .gguf file
    served_name: str | None = None  # what requests call it; None: the engine's own choice
    max_model_len: int | None = None  # tokens of a prompt and its answer
    max_num_seqs: int | None = None  # sequences at a time
    tensor_parallel_size: int = 1
    dtype: str | None = None
    quantization: str | None = None  # of the target's weights
    kv_cache_bytes: int | None = None
    threads: int | None = None  # engines on a CPU
    extra: tuple[str, ...] = ()  # flags of this engine, passed on as they are


@dataclass(frozen=True, slots=True)
class Installed:
    version: str
    options: frozenset[str]  # flags its own parser knows, e.g. "--speculative-config"


@dataclass(frozen=True, slots=True)
class Capabilities:
    methods: frozenset[str]  # of Speculation; "off" always
    rules: frozenset[str]
    draft_quantizations: frozenset[str]
    has_schedule: bool  # a draft length by batch size
    has_draft_tensor_parallel: bool
    acceptance_per_request: bool  # each answer tells of its own drafts
    acceptance_per_position: bool


@dataclass(frozen=True, slots=True)
class Launch:
    """A command to start, and what to know about it."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)  # beside our own environment
    notes: tuple[str, ...] = ()  # what was translated, set or left out, and why


@dataclass(frozen=True, slots=True)
class Traffic:
    """What a preflight needs to know of the requests to come."""

    concurrency: int = 1  # requests at a time, at most
    temperatures: tuple[float, ...] = (0.0,)
    longest: int = 0  # tokens of the longest prompt with its answer; 0: not known
    fields: frozenset[str] = frozenset()  # sampling fields in use: "min_p", "logit_bias", …


class Backend(Protocol):
    name: str

    def detect(self) -> Installed:
        """What is installed; a BackendError with the install line where nothing is."""

    def capabilities(self) -> Capabilities: ...

    def launch(self, serving: Serving, speculation: Speculation, port: int) -> Launch:
        """The command for the version that `detect` found. OptionError for what it cannot do."""

    def preflight(
        self, serving: Serving, speculation: Speculation, traffic: Traffic
    ) -> tuple[str, ...]:
        """Warnings before the start: known ways in which this would disappoint."""

    def drafted(self, page: Mapping[str, float]) -> AcceptanceCounts | None:
        """What its /metrics counts of drafts since its start; None where it counts none."""
