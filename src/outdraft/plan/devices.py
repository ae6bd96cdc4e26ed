"""GPUs and their memory. `h100:2` is two of them, `80GiB:2` two devices of so much.

`2xh100` and `h100x2` mean `h100:2`, as people write it.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from outdraft.errors import OptionError, unknown_choice

# Name → MiB, as nvidia-smi and rocm-smi report it: a card sold with 24 GB has 24,564 or 23,034.
GPUS: Mapping[str, int] = tomllib.loads(
    Path(__file__).with_name("gpus.toml").read_text(encoding="utf-8")
)
MAX_DEVICES = 1024

_PREFIXES = ("", "K", "M", "G", "T")
_UNITS = {f"{prefix}B": 10 ** (3 * power) for power, prefix in enumerate(_PREFIXES)}
_UNITS |= {f"{prefix}IB": 2 ** (10 * power) for power, prefix in enumerate(_PREFIXES) if prefix}
_COUNT_FIRST = re.compile(r"(\d+)\s*[xX×*]\s*(.+)")
_COUNT_LAST = re.compile(r"(.+?)\s*[xX×*]\s*(\d+)")
_BYTES = re.compile(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]*)")


@dataclass(frozen=True, slots=True)
class Devices:
    """Equal devices that share one model by tensor parallelism."""

    name: str
    count: int
    bytes_each: int

    @property
    def total_bytes(self) -> int:
        return self.count * self.bytes_each


def parse_gpu(text: str) -> Devices:
    last = _COUNT_LAST.fullmatch(text.strip())
    if last is not None and _known_gpu(last[1]) is not None:  # not the x of rtx4090
        text = f"{last[1]}:{last[2]}"
    name, count = _split_count("--gpu", text)
    gpu = _known_gpu(name)
    if gpu is None:
        raise unknown_choice("GPU", name, GPUS)
    return Devices(gpu, count, GPUS[gpu] << 20)


def _known_gpu(name: str) -> str | None:
    squeezed = re.sub(r"[\s_-]", "", name.lower())
    return next((each for each in GPUS if each.replace("-", "") == squeezed), None)


def parse_memory(text: str) -> Devices:
    size, count = _split_count("--memory", text)
    num_bytes = parse_bytes("--memory", size)
    if num_bytes < 1:
        raise OptionError(f"--memory must be more than nothing, got {text!r}")
    return Devices("device", count, num_bytes)


def parse_bytes(flag: str, text: str) -> int:
    """80GB is 80·10^9 bytes, 80GiB 80·2^30; a number alone is bytes."""
    match = _BYTES.fullmatch(text.strip())
    unit = (match[2] or "B").upper() if match else ""
    if match is None or unit not in _UNITS:
        raise OptionError(f"{flag} takes a size such as 80GB or 79.6GiB, got {text!r}")
    if not match[2] and float(match[1]) < 2**20:
        raise OptionError(f"{flag} {text} would be {text} bytes; give a unit, such as {text}GiB")
    return int(float(match[1]) * _UNITS[unit])


def _split_count(flag: str, text: str) -> tuple[str, int]:
    first = _COUNT_FIRST.fullmatch(text.strip())
    name, separator, count = (first[2], "x", first[1]) if first else text.partition(":")
    if not separator:
        return name, 1
    if not count.isdecimal() or not 1 <= int(count) <= MAX_DEVICES:
        raise OptionError(
            f"{flag} takes NAME:COUNT with 1 to {MAX_DEVICES} devices, such as "
            f"{'h100:2' if flag == '--gpu' else '80GiB:2'}, got {text!r}"
        )
    return name, int(count)
