"""The machine that a measurement was made on."""

import os
import platform
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import Any

from outdraft.version import __version__

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
    """Of NVIDIA's GPUs, those that CUDA_VISIBLE_DEVICES leaves where it names them by number. CUDA
    stops at the first word that is no number of theirs: "" and "-1" leave none."""
    return _ask_gpus("name", env)


def gpu_memory(env: Mapping[str, str] = os.environ) -> list[tuple[int, int]]:
    """Bytes of each of these GPUs: all, and those that are free."""
    rows = [row.split(",") for row in _ask_gpus("memory.total,memory.free", env)]
    with suppress(ValueError):  # "[N/A]" where the memory is the machine's
        return [(int(total) << 20, int(free) << 20) for total, free in rows]
    return []


def gpu_ids(env: Mapping[str, str] = os.environ) -> list[str]:
    """Of each of these GPUs, as CUDA_VISIBLE_DEVICES names it."""
    visible = env.get("CUDA_VISIBLE_DEVICES", "")
    if visible.startswith(("GPU-", "MIG-")):
        return [each.strip() for each in visible.split(",")]
    return [each.strip() for each in _ask_gpus("index", env)]


def _ask_gpus(fields: str, env: Mapping[str, str]) -> list[str]:
    """A line for each GPU that is visible."""
    lines: Sequence[str] = ()
    if (program := shutil.which("nvidia-smi")) is not None:
        form = (f"--query-gpu={fields}", "--format=csv,noheader,nounits")
        with suppress(OSError, subprocess.SubprocessError):
            done = subprocess.run(
                (program, *form), capture_output=True, text=True, timeout=_ASK_S, check=True
            )
            lines = done.stdout.split("\n")[:-1]
    visible = env.get("CUDA_VISIBLE_DEVICES")
    if visible is None or visible.startswith(("GPU-", "MIG-")):
        return list(lines)
    by_number = {str(number): line for number, line in enumerate(lines)}
    words = (word.strip() for word in visible.split(","))
    return [by_number[word] for word in takewhile(by_number.__contains__, words)]


def available_memory() -> int | None:
    """Bytes that can be used without swapping; None where the system does not say."""
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


def resident_memory(pids: Iterable[int]) -> int:
    """Bytes of all these processes together; on Linux only."""
    pages = 0
    for pid in pids:
        with suppress(OSError, ValueError, IndexError):
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


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
