"""What a container of an engine needs: image, entry point, mounts, and a question of its health."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from outdraft.emit.config import ADAPTIVE_FILE, RAY_PORT, EngineConfig
from outdraft.emit.remarks import flag_remarks, reasons
from outdraft.emit.shell import command_lines

FILES = "/etc/outdraft"  # where the configuration's own files are mounted
CACHE = "/root/.cache/huggingface"
SHARED_MEMORY_GIB = 16  # NCCL and the engines' processes speak through it


@dataclass(frozen=True, slots=True)
class Image:
    name: str
    why: str


def image(config: EngineConfig) -> Image:
    version = config.version.partition("+")[0]
    if config.engine == "vllm":
        if config.gpus == 0:
            return Image(f"vllm-cpu:{version}", "an image of yours with vLLM for the CPU")
        return Image(f"vllm/vllm-openai:v{version}", "the version the flags are for")
    if config.engine == "sglang":
        return Image(f"lmsysorg/sglang:v{version}", "the version the flags are for")
    if config.engine == "llamacpp":
        kind = "server-cuda" if config.gpus else "server"
        return Image(f"ghcr.io/ggml-org/llama.cpp:{kind}", "pin a build once it is tried")
    return Image(f"outdraft:{version}", "an image of yours with pip install 'outdraft[server]'")


def inside(config: EngineConfig) -> EngineConfig:
    """As it is in a container: reachable from outside, files where they are mounted."""
    config = config.with_value("--host", "0.0.0.0")
    if ADAPTIVE_FILE in config.files:
        config = config.with_value("--speculative-adaptive-config", f"{FILES}/{ADAPTIVE_FILE}")
    return replace(config, env={**config.env} | offline(config))


def offline(config: EngineConfig) -> dict[str, str]:
    is_local = config.engine != "llamacpp" and folders(config) == config.models
    return {"HF_HUB_OFFLINE": "1"} if is_local else {}


def folders(config: EngineConfig) -> tuple[str, ...]:
    """Models that are named by an absolute path: they are mounted at the same one."""
    return tuple(name for name in config.models if name.startswith("/"))


def mounts(config: EngineConfig) -> Iterator[str]:
    """Folders of the host that the container sees, each once."""
    for name in dict.fromkeys(folders(config)):
        path = PurePosixPath(name)
        yield str(path.parent if path.suffix == ".gguf" else path)


def command_items(config: EngineConfig, *, skips: int = 0) -> Iterator[tuple[list[str], list[str]]]:
    """(reasons, words) for the program and each flag; `skips` words are the entry point's."""
    yield ["what is served" if config.engine == "vllm" else ""], list(config.program[skips:])
    for flag in config.flags:
        yield reasons(flag), list(flag.words)


def health(config: EngineConfig) -> str:
    """A shell command that succeeds when the server answers."""
    url = f"http://127.0.0.1:{config.port}/health"
    if config.engine == "llamacpp":
        return f"curl -fs {url}"
    return f"python3 -c 'import urllib.request; urllib.request.urlopen(\"{url}\", timeout=5)'"


def script(config: EngineConfig, rank: str, head: str) -> list[str]:
    """One of several hosts, as shell lines. rank: how a shell knows which; head: the first one."""
    # The container has the environment already; exec: a stop reaches the engine, not the shell.
    config = replace(config, env={}, program=("exec", *config.program))
    if config.engine == "sglang":
        config = config.with_value("--node-rank", "RANK")
    lines = [f"# {line}" for line in flag_remarks(config)]
    if config.engine == "vllm":
        lines += [
            f'if [ "{rank}" != 0 ]; then',
            f"  exec ray start --address={head}:{RAY_PORT} --block",
            "fi",
            f"ray start --head --port={RAY_PORT}",
        ]
        return lines + command_lines(config)
    # What the shell puts in is not to be quoted.
    return lines + [
        line.replace("--node-rank RANK", f'--node-rank "{rank}"').replace(" HEAD:", f" {head}:")
        for line in command_lines(config)
    ]


def quoted(text: str) -> str:
    """A YAML string: JSON's form is one."""
    return json.dumps(text, ensure_ascii=False)
