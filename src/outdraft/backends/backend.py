"""The seam to an engine: what every backend says of its engine, as data.

A backend knows one engine: which flags make a Speculation and why, what the engine can do, what
runs it in a container. It starts nothing itself: `process.py` starts what `launch` returns, and
`emit` writes it down.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from outdraft.backends.flags import Flag
from outdraft.backends.installation import Installation
from outdraft.speculation import Speculation

_PYTHON_PROBE = "python3 -c 'import urllib.request; urllib.request.urlopen(\"{url}\", timeout=5)'"


@dataclass(frozen=True, slots=True)
class Serving:
    """A target to be served, in words that every engine understands."""

    target: str  # catalog name, hub id, folder or .gguf file
    served_name: str | None = None  # what requests call it; None: the engine's own choice
    max_model_len: int | None = None  # tokens of a prompt and its answer
    max_num_seqs: int | None = None  # sequences at a time
    tensor_parallel_size: int = 1  # GPUs of each host that share the target
    dtype: str | None = None
    quantization: str | None = None  # of the target's weights
    kv_cache_bytes: int | None = None
    has_prefix_cache: bool = True  # KV cache of a prompt's prefix is reused
    forgets: bool = False  # no answer helps a later request, or not after `forget_paths`
    can_sleep: bool = False  # started so that `Capabilities.sleep` works
    memory_share: float | None = None  # of a GPU's memory; None: the engine's own choice
    threads: int | None = None  # engines on a CPU
    gpus: tuple[str, ...] = ()  # that it sees, as CUDA_VISIBLE_DEVICES names them; (): as we do
    extra: tuple[str, ...] = ()  # flags of this engine, passed on as they are
    hosts: int = 1  # that form one server


@dataclass(frozen=True, slots=True)
class Sleep:
    """How an engine gives its memory back for a while: a POST to either path."""

    sleep_path: str
    wake_path: str
    body: str = ""  # of both, JSON
    keeps_weights: bool = False  # on the GPU; else they wait in main memory


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an engine of this version can do."""

    methods: frozenset[str]  # of Speculation; "off" always
    rules: frozenset[str]
    draft_quantizations: frozenset[str] = frozenset({"none"})
    has_draft_tensor_parallel: bool = False
    acceptance_per_request: bool = True  # each answer reports its own drafts
    schedule_methods: frozenset[str] = frozenset()  # with a draft length by batch size
    excluded: frozenset[tuple[str, str]] = frozenset()  # (method, rule) that do not go together
    shares_process: bool = False  # a request names its k: one process serves every draft length
    needs_local_files: bool = False  # it does not fetch a target from the hub by itself
    has_clusters: bool = False  # several hosts can form one server
    default_num_seqs: int | None = None  # sequences at a time where nobody says, as far as known
    needs_folders: bool = False  # drafts as ordinary folders: no .gguf file, no head in blocks
    has_shipped_drafts: bool = False  # those that ship with outdraft, by their names
    # Methods that remember answers of earlier requests → path that a POST to makes them forget,
    # where the engine was started with `Serving.forgets`; "": it has to be started again.
    forget_paths: Mapping[str, str] = field(default_factory=dict)
    idle_path: str = ""  # a POST to it is refused while requests run; "": its gauges tell at once
    sleep: Sleep | None = None  # where the engine was started with `Serving.can_sleep`
    # Of a GPU's memory, told to each engine of a run where nobody says another; None: the engine
    # finds out by itself what it can take.
    memory_share: float | None = None
    usual_start_s: float = 60.0  # until a process answers, beside loading weights: a guess
    # Quantizations of a draft that are no flag but another file → what that file is.
    quantized_files: Mapping[str, str] = field(default_factory=dict)

    def rules_of(self, method: str) -> frozenset[str]:
        return frozenset(rule for rule in self.rules if (method, rule) not in self.excluded)


@dataclass(frozen=True, slots=True)
class Cluster:
    """How several hosts form one server. HEAD stands for the first host's address."""

    port: int  # where they meet
    # Commands before the server itself, which then runs on the first host only. Without them every
    # host runs the server, each with its own number as the value of `rank_flag`.
    head_command: str = ""
    worker_command: str = ""
    wait_flag: str = ""  # keeps the workers' command in the foreground
    status_command: str = ""  # shows the hosts that have joined
    rank_flag: str = ""


@dataclass(frozen=True, slots=True)
class Launch:
    """A command to start, and what to know about it."""

    program: tuple[str, ...]
    flags: tuple[Flag, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)  # beside our own environment
    notes: tuple[str, ...] = ()  # what was translated, set or left out, and why
    files: Mapping[str, str] = field(default_factory=dict)  # path → text, there before the start
    models: tuple[str, ...] = ()  # target and draft as the flags name them
    cluster: Cluster | None = None  # where there are several hosts

    @property
    def argv(self) -> tuple[str, ...]:
        return (*self.program, *(word for flag in self.flags for word in flag.words))


@dataclass(frozen=True, slots=True)
class Container:
    """What runs the engine in a container."""

    image: str
    reason: str = "the version the flags are for"  # why this image
    starts_engine: bool = False  # the image starts the program by itself, with our flags
    uses_gpus: bool = True
    fetches_models: bool = True  # from the hub, into a cache that is worth keeping
    cache: str = "/root/.cache/huggingface"  # where that is in the container
    # What is kept there, on the host; "": a volume of its own, since the container is not root.
    host_cache: str = "~/.cache/huggingface"
    health_command: str = _PYTHON_PROBE  # succeeds when {url} answers


@dataclass(frozen=True, slots=True)
class Traffic:
    """What a preflight needs to know of the requests to come."""

    concurrency: int = 1  # requests at a time, at most
    temperatures: tuple[float, ...] = (0.0,)
    longest: int = 0  # tokens of the longest prompt with its answer; 0: not known
    fields: frozenset[str] = frozenset()  # sampling fields in use: "min_p", "logit_bias", …


class Backend(Protocol):
    name: str  # on the command line and in files
    title: str  # as its makers write it
    installation: Installation

    def capabilities(self) -> Capabilities: ...

    def launch(self, serving: Serving, speculation: Speculation, port: int) -> Launch:
        """The command for this installation. OptionError for what it cannot do."""

    def warnings(
        self, serving: Serving, speculation: Speculation, traffic: Traffic
    ) -> Iterable[str]:
        """Known ways in which this engine would disappoint; `checks.preflight` asks for them."""

    def container(self) -> Container: ...
