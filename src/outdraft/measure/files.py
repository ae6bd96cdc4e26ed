"""Results on disk: whole or not at all."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from outdraft.errors import OptionError, OutdraftError
from outdraft.records import Trial, trial_from_json


def write_json(path: Path, value: Any) -> None:
    """Written beside its place, flushed to the disk, then renamed into it."""
    beside: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}.", delete=False
        ) as temporary:
            beside = Path(temporary.name)
            json.dump(value, temporary)
            temporary.flush()
            os.fsync(temporary.fileno())
        beside.chmod(0o666 & ~_umask())  # a temporary file is for its owner alone
        beside.replace(path)
        beside = None
    except OSError as error:
        raise OutdraftError(f"cannot write {path}: {error.strerror}") from error
    finally:
        if beside is not None:
            beside.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def read_trial(path: Path) -> Trial:
    try:
        return trial_from_json(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise OptionError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise OptionError(f"{path} is no saved run ({error}); make one with bench --out") from None
