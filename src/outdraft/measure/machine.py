"""The machine that a measurement was made on."""

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import Any

from outdraft.version import __version__

_CSV = "--format=csv,noheader,nounits"
_UUID = re.compile(r"\(UUID: (\S+)\)")
_ASK_S = 10.0  # nvidia-smi answers within a second, unless the driver hangs


def describe_machine() -> dict[str, Any]:
    """What makes times differ from those of another machine."""
    return {
        "machine": f"{platform.system()} {platform.machine()}",
        "cpu": _cpu_name(),
        "cores": _num_cores(),
        "memory_gib": _memory_gib(),
        "gpus": gpu_names(),
    }


def describe_client() -> dict[str, Any]:
    """The machine that the client runs on, for whoever reads the measurement later."""
    return {
        "outdraft": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        **describe_machine(),
        "load_average": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
    }


def gpu_names(env: Mapping[str, str] = os.environ) -> list[str]:
    """Of NVIDIA's GPUs, those that CUDA_VISIBLE_DEVICES leaves."""
    return [name for _, name in _visible_gpus("name", env)]


def gpu_memory(env: Mapping[str, str] = os.environ) -> list[tuple[int, int]]:
    """Bytes of each of these GPUs: all, and those that are free. Empty where that is not known, as
    of a part of a GPU (MIG)."""
    rows = _visible_gpus("memory.total,memory.free", env)
    if any(word.startswith("MIG-") for word, _ in rows):
        return []
    with suppress(ValueError):  # "[N/A]" where the memory is the machine's
        pairs = [line.split(",") for _, line in rows]
        return [(int(total) << 20, int(free) << 20) for total, free in pairs]
    return []


def gpu_ids(env: Mapping[str, str] = os.environ) -> list[str]:
    """Of each of these GPUs, as CUDA_VISIBLE_DEVICES names it."""
    return [word for word, _ in _visible_gpus("name", env)]


def _visible_gpus(fields: str, env: Mapping[str, str]) -> list[tuple[str, str]]:
    """The word that CUDA_VISIBLE_DEVICES has for each GPU, and what nvidia-smi says of it. Words
    are numbers, or the beginning of the identifier of a GPU or of a part of one, of which is said
    what is true of the whole. CUDA stops at the first word that names nothing here: "" and "-1"
    leave none."""
    rows = [line.split(", ", 1) for line in _ask_nvidia(f"--query-gpu=uuid,{fields}", _CSV)]
    lines = {each[0]: each[1] for each in rows if len(each) > 1}
    by_number = {str(number): line for number, line in enumerate(lines.values())}
    visible = env.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return list(by_number.items())
    by_id = lines | (_parts_of_gpus(lines) if "MIG-" in visible else {})

    def line_of(word: str) -> str | None:
        if not word.startswith(("GPU-", "MIG-")):
            return by_number.get(word)
        return next((line for name, line in by_id.items() if name.startswith(word)), None)

    words = [word.strip() for word in visible.split(",")]
    found = takewhile(lambda each: each[1] is not None, ((word, line_of(word)) for word in words))
    return [(word, line) for word, line in found if line is not None]


def _parts_of_gpus(lines: Mapping[str, str]) -> dict[str, str]:
    """Identifiers of parts of GPUs (MIG), with the line of the whole."""
    parts, whole = {}, ""
    for line in _ask_nvidia("-L"):
        if named := _UUID.search(line):
            if named[1] in lines:
                whole = lines[named[1]]
            elif whole:
                parts[named[1]] = whole
    return parts


def _ask_nvidia(*words: str) -> Sequence[str]:
    """Lines of nvidia-smi; none where it is missing or fails."""
    if (program := shutil.which("nvidia-smi")) is not None:
        with suppress(OSError, subprocess.SubprocessError):
            done = subprocess.run(
                (program, *words), capture_output=True, text=True, timeout=_ASK_S, check=True
            )
            return done.stdout.splitlines()
    return ()


def _num_cores() -> int | None:
    """That this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def _memory_gib() -> int | None:
    """To the nearest GiB: kernels of one machine keep different amounts for themselves."""
    with suppress(OSError, ValueError):
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)
    return None


def _cpu_name() -> str:
    with suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":")[1].strip() for line in lines if "model name" in line)
    return platform.processor() or "unknown"
