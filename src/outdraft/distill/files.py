"""Files of a distillation on disk: whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from outdraft.errors import OptionError, OutdraftError
from outdraft.whole_file import write_text, write_whole


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
) -> None:
    held = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_whole(path, lambda file: file.write(save(held, dict(metadata or {}))))


def write_state(path: Path, state: Mapping[str, Any]) -> None:
    """Training state: tensors and plain values, read back by `read_state`."""
    try:
        write_whole(path, lambda file: torch.save(dict(state), file))
    except RuntimeError as error:  # torch's own words for a write that failed
        if "write" not in str(error):
            raise
        raise OutdraftError(f"cannot write {path}: is the disk full?") from error


def read_state(path: Path) -> dict[str, Any]:
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # any of a dozen kinds, by where the file was cut
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise OptionError(f"{path} cannot be read ({reason}); remove it to start again") from error
    assert isinstance(state, dict)
    return state


def read_object(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise OptionError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise OptionError(f"{path} is not JSON ({error}); remove it to start again") from None
    if not isinstance(value, dict):
        raise OptionError(f"{path} holds no JSON object; remove it to start again")
    return value
