"""A configuration as a command: comments first, then what to run. Other forms use its parts."""

import shlex
from textwrap import wrap

from outdraft.backends.flags import Flag
from outdraft.emit.config import EngineConfig
from outdraft.emit.quoting import comments
from outdraft.version import __version__

_WIDTH = 98
_SHORT = 40  # longer values are in the command itself


def shell(config: EngineConfig) -> str:
    lines = [*comments([*heading(config), "", *flag_remarks(config)]), ""]
    for name, text in config.files.items():
        lines += [f"cat > {shlex.quote(name)} <<'END'", *text.rstrip("\n").split("\n"), "END", ""]
    return "\n".join([*lines, *comments(_hosts(config)), *command_lines(config), ""])


def command_lines(config: EngineConfig) -> list[str]:
    """The command over several lines, with its environment and positional words on the first."""
    words = [f"{name}={shlex.quote(value)}" for name, value in config.env.items()]
    lines = [" ".join([*words, shlex.join(config.program)])]
    for flag in config.flags:
        if flag.name:
            lines.append(f"  {shlex.join(flag.words)}")
        else:
            lines[-1] += f" {shlex.join(flag.words)}"
    return [f"{line} \\" for line in lines[:-1]] + lines[-1:]


def _hosts(config: EngineConfig) -> list[str]:
    """Where to run the command, if not on one host; without a comment sign."""
    cluster = config.cluster
    if cluster is None:
        return []
    if cluster.rank_flag:
        return [f"On each of the {config.hosts} hosts, with its own {cluster.rank_flag}:"]
    return [
        "On the first host (HEAD is its address), then on each of the others:",
        f"  {cluster.head_command}",
        f"  {cluster.worker_command}",
        f"`{cluster.status_command}` shows {config.hosts} nodes? Then on the first host only:",
    ]


def heading(config: EngineConfig) -> list[str]:
    """What this is, then the notes; without a comment sign."""
    where = f"{config.gpus} GPU{'s' * (config.gpus != 1)}" if config.gpus else "CPU"
    if config.hosts > 1:
        where = f"{config.hosts} hosts with {where} each"
    name = f"{config.title} {config.version}"
    lines = wrap(f"{name}, {where}: {config.summary}.", _WIDTH, subsequent_indent="  ")
    lines.append(f"Written by outdraft {__version__}.")
    for note in config.notes:
        lines += wrap(f"note: {note}", _WIDTH, subsequent_indent="  ")
    return lines


def reason_lines(flag: Flag) -> list[str]:
    """Why a flag is there, and why each of the settings in its value is."""
    return [flag.reason, *(f"  {line}" for line in flag.details)] if flag.reason else []


def flag_remarks(config: EngineConfig) -> list[str]:
    """A line for each flag that has a reason: for forms that cannot say it beside the flag."""
    lines: list[str] = []
    for flag in config.flags:
        if flag.reason:
            words = " ".join(flag.words)
            is_long = flag.name and len(words) > _SHORT
            first, *more = reason_lines(flag)
            lines += [f"{flag.name if is_long else words}: {first}", *more]
    return lines
