"""A configuration as a Docker Compose file. Several hosts: the same file on each of them."""

from typing import Any

from outdraft.emit import container
from outdraft.emit.config import EngineConfig
from outdraft.emit.quoting import comments
from outdraft.emit.shell import heading
from outdraft.emit.yaml import Comment, TextBlock, YamlMap, yaml_lines

_RANK, _HEAD = "${RANK}", "${HEAD}"
_VOLUME = "models"


def compose(config: EngineConfig) -> str:
    config = container.in_container(config)
    head = heading(config)
    if config.hosts > 1:
        head += [
            "",
            f"Put this file on each of the {config.hosts} hosts and start it there with",
            "  RANK=0 HEAD=ADDRESS docker compose up -d     # the first host, at ADDRESS",
            "  RANK=1 HEAD=ADDRESS docker compose up -d     # the second, and so on",
        ]
    contents = {_config_name(name): {"content": TextBlock(t)} for name, t in config.files.items()}
    has_volume = config.container.fetches_models and not config.container.host_cache
    volumes: YamlMap = {_VOLUME: {}} if has_volume else {}
    service = _service(config)
    document = {"services": {config.engine: service}, "configs": contents, "volumes": volumes}
    return "\n".join([*comments(head), *yaml_lines(document), ""])


def _service(config: EngineConfig) -> YamlMap:
    env = _for_shell(dict(config.env))
    network: YamlMap = {"ports": [f"{config.port}:{config.port}"]}
    if config.hosts > 1:
        env |= {"RANK": "${RANK:?which host}", "HEAD": "${HEAD:?the first host}"}
        why = "the hosts' processes find each other at their own addresses"
        network = {Comment(why): None, "network_mode": "host"}
    volumes = [_for_shell(f"{path}:{path}:ro") for path in container.mounts(config)]
    if config.container.fetches_models:
        volumes += [
            Comment("what was fetched from the hub stays"),
            f"{config.container.host_cache or _VOLUME}:{config.container.cache}",
        ]
    token: YamlMap = {}
    if container.may_need_token(config):
        why = (
            f"gated models need a token: a line {container.TOKEN}=… in this file, which may be away"
        )
        token = {
            Comment(why): None,
            "env_file": [{"path": container.TOKEN_FILE, "required": False}],
        }
    gpus = {"driver": "nvidia", "count": config.gpus, "capabilities": ["gpu"]}
    return {
        Comment(config.container.reason): None,
        "image": config.container.image,
        **_for_shell(container.command(config, "entrypoint", "command", rank=_RANK, head=_HEAD)),
        **network,
        "volumes": volumes,
        "configs": [
            {"source": _config_name(name), "target": f"{container.FILES}/{name}"}
            for name in config.files
        ],
        Comment("shared memory for the processes of one server"): None,
        "shm_size": f"{container.SHARED_MEMORY_GIB}gb",
        **token,
        "environment": env,
        "deploy": {"resources": {"reservations": {"devices": [gpus]}}} if config.gpus else {},
        "healthcheck": {
            "test": ["CMD-SHELL", _for_shell(container.health_command(config, _RANK))],
            "interval": "10s",
            "timeout": "10s",
            "retries": 3,
            Comment("loading and warming up take minutes"): None,
            "start_period": "30m",
        },
        "restart": "unless-stopped",
    }


def _for_shell(value: Any) -> Any:
    """In a Compose file $ is written twice where the shell is to see it."""
    if isinstance(value, dict):
        return {key: _for_shell(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_for_shell(each) for each in value]
    return type(value)(value.replace("$", "$$")) if isinstance(value, str) else value


def _config_name(file: str) -> str:
    return file.partition(".")[0]
