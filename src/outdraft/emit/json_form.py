"""A configuration as one JSON object. JSON has no comments: `why` and `notes` stand beside it."""

import json
from typing import Any

from outdraft.backends.flags import Flag
from outdraft.emit.config import EngineConfig
from outdraft.emit.shell import reason_lines


def json_form(config: EngineConfig) -> str:
    cluster = config.cluster
    before = (cluster.head_command, cluster.worker_command) if cluster else ()
    value = {
        "engine": config.engine,
        "version": config.version,
        "speculation": config.summary,
        "command": list(config.argv),
        "environment": dict(config.env),
        "config": {_key(flag): _value(flag) for flag in config.flags},
        "files": {name: json.loads(text) for name, text in config.files.items()},
        "before": [command for command in before if command],  # on the first host, on the others
        "hosts": config.hosts,
        "gpus_per_host": config.gpus,
        "why": {_key(flag): " · ".join(line.strip() for line in reason_lines(flag))
                for flag in config.flags if flag.reason},
        "notes": list(config.notes),
    }  # fmt: skip
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _key(flag: Flag) -> str:
    """As in a file for vLLM's --config, where the positional target is `model`."""
    return flag.name.lstrip("-") or "model"


def _value(flag: Flag) -> Any:
    """A switch is true; numbers and JSON are themselves."""
    if not flag.values:
        return True
    if len(flag.values) > 1:
        return list(flag.values)
    try:
        return json.loads(flag.values[0])
    except ValueError:
        return flag.values[0]
