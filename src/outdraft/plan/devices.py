"""GPUs and their memory. `h100:2` is two of them, `80GiB:2` two devices of so much."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from outdraft.errors import OptionError, unknown_choice

# GB as sold (10^9 bytes), which is what people reckon with. Drivers of cards sold in binary
# gigabytes report up to 7 % more; `--memory` takes what nvidia-smi says.
GPUS: Mapping[str, int] = {
    "h100": 80,
    "h100-nvl": 94,
    "h200": 141,
    "gh200": 96,
    "b200": 180,
    "gb200": 186,
    "b300": 288,
    "gb300": 288,
    "a100-40": 40,
    "a100-80": 80,
    "a100": 80,
    "a40": 48,
    "a10": 24,
    "a10g": 24,
    "a6000": 48,
    "l4": 24,
    "l40": 48,
    "l40s": 48,
    "t4": 16,
    "v100-16": 16,
    "v100-32": 32,
    "rtx3090": 24,
    "rtx4090": 24,
    "rtx5090": 32,
    "rtx-pro-6000": 96,
    "mi250x": 128,
    "mi300x": 192,
    "mi325x": 256,
    "mi355x": 288,
}
MAX_DEVICES = 1024

_UNITS = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
    "TIB": 2**40,
}
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
    name, count = _counted("--gpu", text)
    known = {_squeezed(each): each for each in GPUS}
    if _squeezed(name) not in known:
        raise unknown_choice("GPU", name, GPUS)
    found = known[_squeezed(name)]
    return Devices(found, count, GPUS[found] * 10**9)


def parse_memory(text: str) -> Devices:
    size, count = _counted("--memory", text)
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


def _counted(flag: str, text: str) -> tuple[str, int]:
    name, separator, count = text.partition(":")
    if not separator:
        return name, 1
    if not count.isdecimal() or not 1 <= int(count) <= MAX_DEVICES:
        raise OptionError(
            f"{flag} takes NAME:COUNT with 1 to {MAX_DEVICES} devices, such as "
            f"{'h100:2' if flag == '--gpu' else '80GiB:2'}, got {text!r}"
        )
    return name, int(count)


def _squeezed(name: str) -> str:
    return re.sub(r"[\s_-]", "", name.lower())
