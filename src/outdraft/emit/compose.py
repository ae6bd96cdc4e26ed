"""A configuration as a Docker Compose file. Several hosts: the same file on each of them."""

from __future__ import annotations

from outdraft.emit.config import EngineConfig
from outdraft.emit.container import (
    CACHE,
    FILES,
    SHARED_MEMORY_GIB,
    command_items,
    health,
    image,
    inside,
    mounts,
    quoted,
    script,
)
from outdraft.emit.remarks import heading


def compose(config: EngineConfig) -> str:
    config = inside(config)
    lines = [f"# {line}" for line in heading(config)]
    if config.hosts > 1:
        lines += [
            "#",
            f"# Put this file on each of the {config.hosts} hosts and start it there with",
            "#   RANK=0 HEAD=ADDRESS docker compose up -d     # the first host, at ADDRESS",
            "#   RANK=1 HEAD=ADDRESS docker compose up -d     # the second, and so on",
        ]
    picture = image(config)
    lines += [
        "services:",
        f"  {config.engine}:",
        f"    # {picture.why}",
        f"    image: {quoted(picture.name)}",
        *_command(config),
        *_network(config),
        *_volumes(config),
        "    # shared memory for the processes of one server",
        f"    shm_size: {SHARED_MEMORY_GIB}gb",
        *_environment(config),
        *_devices(config),
        *_healthcheck(config),
        "    restart: unless-stopped",
    ]
    if config.files:
        lines.append("configs:")
        for name, text in config.files.items():
            lines += [f"  {_config_name(name)}:", "    content: |"]
            lines += [f"      {line}" for line in text.rstrip("\n").split("\n")]
    return "\n".join(lines) + "\n"


def _command(config: EngineConfig) -> list[str]:
    if config.hosts > 1:
        lines = [_for_shell(line) for line in script(config, "${RANK}", "${HEAD}")]
        return [
            '    entrypoint: ["sh", "-c"]',
            "    command:",
            "      - |",
            *(f"        {line}" for line in lines),
        ]
    lines = []
    skips = 1
    if config.engine == "llamacpp":
        lines.append("    # its image starts llama-server by itself")
    else:
        skips = 2 if config.engine != "sglang" else 3
        entry = ", ".join(quoted(word) for word in config.program[:skips])
        lines.append(f"    entrypoint: [{entry}]")
    lines.append("    command:")
    for why, words in command_items(config, skips=skips):
        lines += [f"      # {line}" for line in why if line and words]
        lines += [f"      - {quoted(_for_shell(word))}" for word in words]
    return lines


def _network(config: EngineConfig) -> list[str]:
    if config.hosts > 1:
        return ["    # the hosts' processes find each other at their own addresses",
                "    network_mode: host"]  # fmt: skip
    return ["    ports:", f"      - {quoted(f'{config.port}:{config.port}')}"]


def _volumes(config: EngineConfig) -> list[str]:
    lines = ["    volumes:"]
    lines += [f"      - {quoted(f'{path}:{path}:ro')}" for path in mounts(config)]
    if config.engine != "llamacpp":
        lines.append("      # what was fetched from the hub stays")
        lines.append(f"      - {quoted(f'~/.cache/huggingface:{CACHE}')}")
    if len(lines) == 1:
        lines = []
    if config.files:
        lines.append("    configs:")
        for name in config.files:
            lines += [f"      - source: {_config_name(name)}",
                      f"        target: {FILES}/{name}"]  # fmt: skip
    return lines


def _environment(config: EngineConfig) -> list[str]:
    values = dict(config.env)
    if config.hosts > 1:
        values |= {"RANK": "${RANK:?which host}", "HEAD": "${HEAD:?the first host}"}
    if not values:
        return []
    return ["    environment:", *(f"      {key}: {quoted(value)}" for key, value in values.items())]


def _devices(config: EngineConfig) -> list[str]:
    if config.gpus == 0:
        return []
    return [
        "    deploy:",
        "      resources:",
        "        reservations:",
        "          devices:",
        "            - driver: nvidia",
        f"              count: {config.gpus}",
        "              capabilities: [gpu]",
    ]


def _healthcheck(config: EngineConfig) -> list[str]:
    test = health(config)
    if config.hosts > 1:  # only the first host answers requests
        test = _for_shell(f'test "${{RANK}}" != 0 || {test}')
    return [
        "    healthcheck:",
        f'      test: ["CMD-SHELL", {quoted(test)}]',
        "      interval: 10s",
        "      timeout: 10s",
        "      retries: 3",
        "      # loading and warming up take minutes",
        "      start_period: 30m",
    ]


def _for_shell(text: str) -> str:
    """In a Compose file $ is written twice where the shell is to see it."""
    return text.replace("$", "$$")


def _config_name(file: str) -> str:
    return file.partition(".")[0]
