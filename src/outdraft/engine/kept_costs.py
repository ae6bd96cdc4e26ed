"""Costs that were measured, kept in the cache folder under all that they depend on."""

import hashlib
import json
import platform
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import torch

from outdraft.catalog import ModelFiles, default_cache_dir
from outdraft.engine.native.library import library, sources_of
from outdraft.errors import OutdraftError
from outdraft.step_costs import RoundCosts
from outdraft.version import __version__
from outdraft.whole_file import write_json

_FRESH_S = 24 * 3600  # older ones are measured again: machines change
_UNSTEADY_S = 600  # the same for those of a busy moment
_SETTLED_S = 60  # a model that is younger may still change
_FORM = 4  # of the file


def kept_costs(
    models: Mapping[str, ModelFiles], device: torch.device, **others: object
) -> "KeptCosts | None":
    """Under a name for all that costs depend on: files by size and time, the machine, the version
    with its compiled code, and `others` such as dtypes. None for models that were written a moment
    ago."""
    is_cpu = device.type == "cpu"
    where = platform.node() if is_cpu else torch.cuda.get_device_name(device)
    threads = torch.get_num_threads() if is_cpu else None
    kind = torch.backends.cpu.get_cpu_capability()
    lib = library()
    code = __version__, torch.__version__, None if lib is None else sources_of(lib)
    parts: list[object] = [_FORM, *code, where, kind, threads, sorted(others.items())]
    newest = 0.0
    for name, model in sorted(models.items()):
        for file in sorted(model.path.iterdir()) if model.path.is_dir() else [model.path]:
            status = file.stat()
            newest = max(newest, status.st_ctime)
            parts.append([name, str(file), status.st_size, status.st_mtime_ns])
    if time.time() - newest < _SETTLED_S:
        return None
    digest = hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()[:32]
    return KeptCosts(default_cache_dir() / "costs" / f"{digest}.json")


class KeptCosts:
    """A file of costs. Where it cannot be written, nothing is kept."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> RoundCosts | None:
        """None where there are none, or old ones, or those of another version."""
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            age = time.time() - self._path.stat().st_mtime
            told = json.loads(self._path.read_text("utf-8"))
            if age < (_FRESH_S if told["is_steady"] else _UNSTEADY_S):
                return RoundCosts.from_json(told["costs"])
        return None

    def write(self, costs: RoundCosts, *, is_steady: bool) -> None:
        """`is_steady`: the times repeated."""
        with suppress(OutdraftError):
            write_json(self._path, {"is_steady": is_steady, "costs": costs.to_json()})
