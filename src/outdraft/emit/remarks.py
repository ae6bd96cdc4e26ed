"""The comments of a configuration: what it is, why each flag is there, what to know."""

from __future__ import annotations

from textwrap import wrap

from outdraft.emit.config import EngineConfig, Flag
from outdraft.emit.why import NAMES, why_keys
from outdraft.version import __version__

_WIDTH = 98
_SHORT = 40  # longer values are in the command itself


def heading(config: EngineConfig) -> list[str]:
    """What this is, then the notes; without a comment sign."""
    where = f"{config.gpus} GPU{'s' * (config.gpus != 1)}" if config.gpus else "CPU"
    if config.hosts > 1:
        where = f"{config.hosts} hosts with {where} each"
    name = f"{NAMES[config.engine]} {config.version}"
    lines = wrap(f"{name}, {where}: {config.summary}.", _WIDTH, subsequent_indent="  ")
    lines.append(f"Written by outdraft {__version__}.")
    for note in config.notes:
        lines += wrap(f"note: {note}", _WIDTH, subsequent_indent="  ")
    return lines


def reasons(flag: Flag) -> list[str]:
    """Why a flag is there; for a --speculative-config also why each of its keys is."""
    lines = [flag.why] if flag.why else []
    if flag.words[0] == "--speculative-config":
        lines += [f"  {shown}: {why}" if why else f"  {shown}" for shown, why in
                  why_keys(flag.words[1])]  # fmt: skip
    return lines


def flag_remarks(config: EngineConfig) -> list[str]:
    """A line for each flag that has a reason: for forms that cannot say it beside the flag."""
    lines: list[str] = []
    for flag in config.flags:
        first, *more = reasons(flag) or [""]
        if first:
            shown = " ".join(flag.words)
            lines.append(f"{flag.words[0] if len(shown) > _SHORT else shown}: {first}")
            lines += [f"  {line.strip()}" for line in more]
    return lines
