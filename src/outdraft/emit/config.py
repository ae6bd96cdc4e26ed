"""EngineConfig: what an engine is started with, each flag with the reason why it is there."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from outdraft.backends import llamacpp_found, sglang_found, vllm_found
from outdraft.backends.backend import Backend, Launch, Serving, Traffic
from outdraft.backends.embedded import Embedded
from outdraft.backends.llamacpp import LlamaCpp
from outdraft.backends.sglang import Sglang
from outdraft.backends.sglang_flags import adaptive_config
from outdraft.backends.vllm import Vllm
from outdraft.catalog import resolve
from outdraft.catalog.entries import SHIPPED_DRAFTS
from outdraft.catalog.lookup import find_entry
from outdraft.emit.drafts import check_head, draft_file
from outdraft.emit.nearest import nearest
from outdraft.emit.why import why
from outdraft.errors import BackendError, OptionError, unknown_choice
from outdraft.speculation import WITH_DRAFT, Speculation
from outdraft.version import __version__

ENGINES = ("vllm", "sglang", "llamacpp", "outdraft")
ADAPTIVE_FILE = "sglang-adaptive.json"  # beside the command, or mounted at /etc/outdraft
DIST_PORT = 20000  # SGLang's hosts meet there
RAY_PORT = 6379


@dataclass(frozen=True, slots=True)
class Flag:
    words: tuple[str, ...]  # the flag and its value
    why: str = ""


@dataclass(frozen=True, slots=True)
class EngineConfig:
    engine: str
    version: str
    summary: str  # of the speculation, in words
    program: tuple[str, ...]  # what is run, before its flags
    flags: tuple[Flag, ...]
    port: int
    env: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)  # to be there before the start
    models: tuple[str, ...] = ()  # as the flags name them
    gpus: int = 1  # of each host; 0 on a CPU
    hosts: int = 1

    @property
    def argv(self) -> tuple[str, ...]:
        return (*self.program, *(word for flag in self.flags for word in flag.words))

    def value_of(self, flag: str) -> str | None:
        return next((f.words[1] for f in self.flags if f.words[0] == flag and f.words[1:]), None)

    def with_value(self, flag: str, value: str) -> EngineConfig:
        changed = (replace(f, words=(flag, value)) if f.words[0] == flag else f for f in self.flags)
        return replace(self, flags=tuple(changed))


def engine_config(
    engine: str,
    speculation: Speculation,
    serving: Serving,
    *,
    version: str | None = None,
    hosts: int = 1,
    port: int = 8000,
) -> EngineConfig:
    """`version` None: the one installed here, else the newest known.

    With several hosts `serving.tensor_parallel_size` is the number of GPUs of each.
    """
    if engine not in ENGINES:
        raise unknown_choice("engine", engine, ENGINES)
    for name, value in (("hosts", hosts), ("tensor_parallel_size", serving.tensor_parallel_size)):
        if value < 1:
            raise OptionError(f"{name} must be at least 1, got {value}")
    if hosts > 1 and engine not in ("vllm", "sglang"):
        raise OptionError(f"{engine} runs on one host, got {hosts}; use vllm or sglang for more")
    gpus = serving.tensor_parallel_size
    speculation = replace(speculation, draft=_absolute(speculation.draft))
    serving = replace(serving, target=_absolute(serving.target) or "")
    serving, notes = _spread(engine, serving, hosts)
    if hosts > 1 and engine == "vllm" and speculation.method in WITH_DRAFT:
        notes.append("the draft runs on the last pipeline stage")
    backend, version = _backend(engine, version, notes)
    if engine == "llamacpp":
        serving = replace(serving, target=_gguf(serving.target))
    if speculation.method in WITH_DRAFT and speculation.draft is not None:
        check_head(engine, speculation.draft)
        if engine == "llamacpp":
            speculation = replace(speculation, draft=draft_file(speculation.draft))
    launch = backend.launch(serving, speculation, port)
    notes += _expected(backend, serving, speculation)
    program, rest = _split(engine, launch)
    draft = () if speculation.is_off or speculation.draft is None else (speculation.draft,)
    return EngineConfig(
        engine=engine,
        version=version,
        summary=in_words(speculation),
        program=program,
        flags=tuple(Flag(words, why(engine, words)) for words in grouped(rest)),
        port=port,
        env=launch.env,
        notes=tuple(dict.fromkeys((*launch.notes, *notes))),
        files={ADAPTIVE_FILE: adaptive_config(speculation)}
        if "--speculative-adaptive" in rest
        else {},
        models=(serving.target, *draft),
        gpus=0 if _is_cpu(backend) else gpus,
        hosts=hosts,
    )


def nearest_config(
    engine: str,
    speculation: Speculation,
    serving: Serving,
    *,
    k: int,
    notes: tuple[str, ...] = (),
    version: str | None = None,
) -> EngineConfig:
    """`engine_config` of what the engine can run that is nearest, with what differs as notes.

    `k`: the draft length where it has no schedule, 0 for off. `notes`: more of them.
    """
    backend, _ = _backend(engine, version, [])
    meant, differences = nearest(engine, speculation, backend.capabilities(), k=k)
    config = engine_config(engine, meant, serving, version=version)
    return replace(config, notes=(*notes, *differences, *config.notes))


def in_words(speculation: Speculation) -> str:
    if speculation.is_off:
        return "no speculation"
    draft = f" with {speculation.draft}" if speculation.draft else ""
    schedule = ", k by load" if speculation.schedule else ""
    return f"{speculation.method}{draft}, k = {speculation.k}{schedule}, {speculation.rule}"


def grouped(words: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Each flag with its values; a value never begins with a dash and a letter."""
    groups: list[list[str]] = []
    for word in words:
        if not groups or (word.startswith("-") and word.lstrip("-")[:1].isalpha()):
            groups.append([word])
        else:
            groups[-1].append(word)
    return [tuple(group) for group in groups]


def _absolute(name: str | None) -> str | None:
    """A folder or file that is here, by its whole path: a container mounts it there."""
    if name is None or find_entry(name) is not None:
        return name
    shipped = SHIPPED_DRAFTS.get(name.lower())
    path = Path(name).expanduser() if shipped is None else shipped.path
    return str(path.resolve()) if path.exists() or name.startswith(("./", "../", "~")) else name


def _spread(engine: str, serving: Serving, hosts: int) -> tuple[Serving, list[str]]:
    """Several hosts: vLLM in pipeline stages through Ray, SGLang in one tensor-parallel group."""
    if hosts == 1:
        return serving, []
    if engine == "vllm":
        staged = ("--pipeline-parallel-size", str(hosts), "--distributed-executor-backend", "ray")
        notes = ["Ray is a package of its own: pip install ray beside vLLM on every host"]
        return replace(serving, extra=(*staged, *serving.extra)), notes
    flags = ("--nnodes", str(hosts), "--node-rank", "0", "--dist-init-addr", f"HEAD:{DIST_PORT}")
    notes = [
        "SGLang does not speculate in pipeline stages: one tensor-parallel group over all hosts, "
        "which wants a fast network between them",
        f"HEAD is the first host's address; every host runs the same with its own --node-rank, 0 "
        f"to {hosts - 1}",
    ]
    size = serving.tensor_parallel_size * hosts
    return replace(serving, tensor_parallel_size=size, extra=(*flags, *serving.extra)), notes


def _backend(engine: str, version: str | None, notes: list[str]) -> tuple[Backend, str]:
    if engine == "vllm":
        found = _vllm(version, notes)
        return Vllm(found), found.installed.version
    if engine == "sglang":
        sglang = _sglang(version, notes)
        return Sglang(sglang, ADAPTIVE_FILE, writes_dumps=True), sglang.installed.version
    if version is not None:
        notes.append(f"one version of {engine} is known here; {version} is not looked at")
    if engine == "llamacpp":
        llamacpp = _llamacpp(version)
        return LlamaCpp(llamacpp), llamacpp.version
    return Embedded(), __version__


def _vllm(version: str | None, notes: list[str]) -> vllm_found.Found:
    if version is None:
        try:
            return replace(vllm_found.detect(), program="vllm")
        except BackendError:
            version = vllm_found.NEWEST
    if vllm_found.numbers(version) > vllm_found.numbers(vllm_found.NEWEST):
        notes.append(f"vLLM {version} is newer than the newest known here, {vllm_found.NEWEST}")
    return vllm_found.known(version)


def _sglang(version: str | None, notes: list[str]) -> sglang_found.Found:
    if version is None:
        try:
            return replace(sglang_found.detect(), python="python3")
        except BackendError:
            version = sglang_found.NEWEST
    if vllm_found.numbers(version) > vllm_found.numbers(sglang_found.NEWEST):
        notes.append(f"SGLang {version} is newer than the newest known here, {sglang_found.NEWEST}")
    return sglang_found.known(version)


def _llamacpp(version: str | None) -> llamacpp_found.Found:
    if version is None:
        with suppress(BackendError):
            here = llamacpp_found.detect()
            return replace(here, command=llamacpp_found.NEWEST.command, is_here=False)
    return llamacpp_found.NEWEST


def _expected(backend: Backend, serving: Serving, speculation: Speculation) -> tuple[str, ...]:
    """What is known to disappoint with as many requests as it takes at a time."""
    if not isinstance(backend, Vllm | Sglang):
        return ()  # theirs are about this machine
    return backend.preflight(serving, speculation, Traffic(concurrency=serving.max_num_seqs or 1))


def _gguf(target: str) -> str:
    if find_entry(target) is not None:
        return str(resolve(target).path)
    if not target.endswith(".gguf"):
        raise OptionError(f"llama.cpp serves .gguf files, got {target}; name one with --target")
    return target


def _split(engine: str, launch: Launch) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The program as it is called anywhere, and the rest."""
    argv = launch.argv
    if engine == "vllm":
        return argv[:3], argv[3:]  # vllm serve TARGET
    if engine == "sglang":
        return argv[:3], argv[3:]  # python3 -m sglang.launch_server
    if engine == "llamacpp":
        return argv[:1], argv[1:]
    rest = list(argv[argv.index("serve") + 1 :])
    place = rest.index("--drain-timeout") if "--drain-timeout" in rest else None
    if place is not None:  # a trial's haste; a server in use lets its requests finish
        del rest[place : place + 2]
    return ("outdraft", "serve"), tuple(rest)


def _is_cpu(backend: Backend) -> bool:
    if isinstance(backend, Vllm):
        return backend.found.is_cpu
    if isinstance(backend, Sglang):
        return backend.found.is_here and backend.found.device == "cpu"
    return isinstance(backend, Embedded)
