"""What Compose and Kubernetes share: the command and its arguments, mounts, health checks."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePosixPath

from outdraft.emit.config import EngineConfig
from outdraft.emit.quoting import comments
from outdraft.emit.shell import command_lines, flag_remarks, reason_lines
from outdraft.emit.yaml import Comment, TextBlock, YamlMap

FILES = "/etc/outdraft"  # where the configuration's own files are mounted
# A token for gated models is in a file or a secret, never in a form: those are pasted and shared.
TOKEN, TOKEN_FILE, SECRET = "HF_TOKEN", "hub.env", "hub-token"
SHARED_MEMORY_GIB = 16  # NCCL and the engines' processes speak through it


def in_container(config: EngineConfig) -> EngineConfig:
    """As it is in a container: reachable from outside, files where they are mounted."""
    moved = {name: f"{FILES}/{name}" for name in config.files}
    values = {flag.name: moved[flag.values[0]] for flag in config.flags
              if flag.values and flag.values[0] in moved}  # fmt: skip
    env = dict(config.env)
    if config.container.fetches_models and config.local_models == config.models:
        env["HF_HUB_OFFLINE"] = "1"
    return replace(config.with_values({"--host": "0.0.0.0", **values}), env=env)


def may_need_token(config: EngineConfig) -> bool:
    """Whether models come from the hub, of which some are given to known users only. `config` as it
    is in a container."""
    return config.container.fetches_models and "HF_HUB_OFFLINE" not in config.env


def mounts(config: EngineConfig) -> Iterator[str]:
    """Folders of the host that the container sees, each once."""
    for name in dict.fromkeys(config.local_models):
        path = PurePosixPath(name)
        yield str(path.parent if path.suffix == ".gguf" else path)


def health_command(config: EngineConfig, rank: str) -> str:
    """A shell command that succeeds when the server answers. `rank`: see `command`; of several
    hosts only the first answers requests."""
    url = f"http://127.0.0.1:{config.port}/health"
    probe = config.container.health_command.format(url=url)
    return probe if config.cluster is None else f'test "{rank}" != 0 || {probe}'


def command(config: EngineConfig, entry: str, arguments: str, *, rank: str, head: str) -> YamlMap:
    """The entry point and its arguments, each flag with its reasons above it.

    entry, arguments: what the form calls them. rank, head: a shell's expressions for the number of
    this host and for the address of the first one.
    """
    if config.cluster is not None:
        script = TextBlock("\n".join(_host_script(config, rank, head)))
        return {entry: ["sh", "-c"], arguments: [script]}
    words: list[str | Comment] = []
    for flag in config.flags:
        words += [Comment(line) for line in reason_lines(flag)]
        words += flag.words
    if config.container.starts_engine:
        return {Comment(f"its image starts {config.program[0]} by itself"): None, arguments: words}
    return {entry: list(config.program), arguments: words}


def _host_script(config: EngineConfig, rank: str, head: str) -> list[str]:
    """Shell lines for any of several hosts."""
    cluster = config.cluster
    assert cluster is not None
    # The container has the environment already; exec: a stop reaches the engine, not the shell.
    config = replace(config, env={}, program=("exec", *config.program))
    if cluster.worker_command:
        worker = cluster.worker_command.replace("HEAD", head)
        return [
            *comments(flag_remarks(config)),
            f'if [ "{rank}" != 0 ]; then',
            f"  exec {worker} {cluster.wait_flag}",
            "fi",
            cluster.head_command,
            *command_lines(config),
        ]
    flag = cluster.rank_flag
    config = config.with_values({flag: "RANK"})
    # What the shell puts in is not to be quoted.
    values = {rf"  {flag} RANK": f'  {flag} "{rank}"', r"  (--\S+) HEAD:": rf"  \1 {head}:"}
    lines = command_lines(config)
    for pattern, value in values.items():
        lines = [re.sub(rf"\A{pattern}", value, line) for line in lines]
    return [*comments(flag_remarks(config)), *lines]
