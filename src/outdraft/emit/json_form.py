"""A configuration as one JSON object. JSON has no comments: `why` and `notes` stand beside it."""

from __future__ import annotations

import json
from typing import Any

from outdraft.emit.config import RAY_PORT, EngineConfig, Flag
from outdraft.emit.remarks import reasons


def json_form(config: EngineConfig) -> str:
    before: list[str] = []
    if config.hosts > 1 and config.engine == "vllm":
        before = [f"ray start --head --port={RAY_PORT}", f"ray start --address=HEAD:{RAY_PORT}"]
    value = {
        "engine": config.engine,
        "version": config.version,
        "speculation": config.summary,
        "command": list(config.argv),
        "environment": dict(config.env),
        "config": _model(config) | {_key(flag): _value(flag) for flag in config.flags},
        "files": {name: json.loads(text) for name, text in config.files.items()},
        "before": before,  # on the first host, then on the others
        "hosts": config.hosts,
        "gpus_per_host": config.gpus,
        "why": {_key(flag): " · ".join(line.strip() for line in said)
                for flag in config.flags if (said := reasons(flag))},
        "notes": list(config.notes),
    }  # fmt: skip
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _model(config: EngineConfig) -> dict[str, Any]:
    """vLLM's target is no flag, but `model` in a file for its --config."""
    return {"model": config.program[2]} if config.engine == "vllm" else {}


def _key(flag: Flag) -> str:
    return flag.words[0].lstrip("-")


def _value(flag: Flag) -> Any:
    """A switch is true; numbers and JSON are themselves."""
    if len(flag.words) == 1:
        return True
    if len(flag.words) > 2:
        return list(flag.words[1:])
    try:
        return json.loads(flag.words[1])
    except ValueError:
        return flag.words[1]
