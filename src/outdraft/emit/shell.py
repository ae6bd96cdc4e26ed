"""A configuration as a command: comments first, then what to run."""

from __future__ import annotations

import shlex

from outdraft.emit.config import RAY_PORT, EngineConfig
from outdraft.emit.remarks import flag_remarks, heading


def shell(config: EngineConfig) -> str:
    lines = [f"# {line}" for line in heading(config)]
    lines.append("#")
    lines += [f"# {line}" for line in flag_remarks(config)]
    lines.append("")
    lines += _files(config)
    lines += _hosts(config)
    lines += command_lines(config)
    return "\n".join(lines) + "\n"


def command_lines(config: EngineConfig) -> list[str]:
    """The command over several lines, its environment before it."""
    before = [f"{name}={shlex.quote(value)}" for name, value in config.env.items()]
    parts = [" ".join([*before, *(shlex.quote(word) for word in config.program)])]
    parts += ["  " + " ".join(shlex.quote(word) for word in f.words) for f in config.flags]
    return [f"{part} \\" for part in parts[:-1]] + parts[-1:]


def _files(config: EngineConfig) -> list[str]:
    lines: list[str] = []
    for name, text in config.files.items():
        lines += [f"cat > {name} <<'END'", *text.rstrip("\n").split("\n"), "END", ""]
    return lines


def _hosts(config: EngineConfig) -> list[str]:
    if config.hosts == 1:
        return []
    if config.engine == "vllm":
        return [
            "# On the first host (HEAD is its address), then on each of the others:",
            f"#   ray start --head --port={RAY_PORT}",
            f"#   ray start --address=HEAD:{RAY_PORT}",
            f"# `ray status` shows {config.hosts} nodes? Then here, on the first host only:",
        ]
    return [f"# On each of the {config.hosts} hosts, with its own --node-rank:"]
