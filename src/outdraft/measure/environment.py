"""What a measurement was made on, so that a later reader can tell whether it still applies."""

from __future__ import annotations

import os
import platform
from typing import Any

from outdraft.version import __version__


def fingerprint() -> dict[str, Any]:
    """Of the machine the client runs on; the server tells its own version."""
    return {
        "outdraft": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
    }


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next(line.split(":")[1].strip() for line in lines if "model name" in line)
    except (OSError, StopIteration):
        return platform.processor() or "unknown"
