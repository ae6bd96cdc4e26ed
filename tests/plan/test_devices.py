"""GPU names and sizes of memory."""

from __future__ import annotations

import pytest

from outdraft.errors import OptionError
from outdraft.plan.devices import GPUS, Devices, parse_bytes, parse_gpu, parse_memory


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("h100", Devices("h100", 1, 81_559 << 20)),
        ("H100:2", Devices("h100", 2, 81_559 << 20)),
        ("h200:8", Devices("h200", 8, 143_771 << 20)),
        ("RTX 4090", Devices("rtx4090", 1, 24_564 << 20)),
        ("a100_40", Devices("a100-40", 1, 40_960 << 20)),
    ],
)
def test_gpus(text: str, found: Devices) -> None:
    assert parse_gpu(text) == found
    assert found.total_bytes == found.count * found.bytes_each


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("2xh100", "h100:2"),
        ("2 x H100", "h100:2"),
        ("2×h100", "h100:2"),
        ("2*h100", "h100:2"),
        ("h100x2", "h100:2"),
        ("H100 x 2", "h100:2"),
        ("4xrtx4090", "rtx4090:4"),
        ("rtx4090x4", "rtx4090:4"),
        ("mi300x x8", "mi300x:8"),
    ],
)
def test_a_count_as_people_write_it(written: str, meant: str) -> None:
    assert parse_gpu(written) == parse_gpu(meant)


def test_cards_have_what_their_tools_show() -> None:
    """Never more than they are sold with in binary gigabytes, and at least 90 % of it."""
    sold = {"l4": 24, "rtx4090": 24, "l40s": 48, "a100": 80, "h100": 80, "h200": 141, "mi300x": 192}
    for name, gigabytes in sold.items():
        assert 0.9 * gigabytes <= GPUS[name] / 1024 <= gigabytes
    assert all(1 << 13 < size < 1 << 19 for size in GPUS.values()), "in MiB"


def test_a_count_of_sizes() -> None:
    assert parse_memory("2x80GiB") == parse_memory("80GiB:2")


def test_an_unknown_gpu_lists_the_known_ones() -> None:
    with pytest.raises(OptionError, match=r"unknown GPU 'h10' \(did you mean 'h100'\?\)") as caught:
        parse_gpu("h10:2")
    assert all(name in str(caught.value) for name in GPUS)


@pytest.mark.parametrize(
    "text", ["h100:0", "h100:x", "h100:-1", "h100:", "h100:99999", "0xh100", "h100x0"]
)
def test_counts_that_cannot_be(text: str) -> None:
    with pytest.raises(OptionError, match=r"NAME:COUNT.*h100:2, got"):
        parse_gpu(text)


@pytest.mark.parametrize(
    ("text", "num_bytes", "count"),
    [
        ("80GB", 80 * 10**9, 1),
        ("80GiB", 80 * 2**30, 1),
        ("79.5gib:2", int(79.5 * 2**30), 2),
        ("512 MiB", 512 * 2**20, 1),
        ("85899345920", 80 * 2**30, 1),
    ],
)
def test_memory(text: str, num_bytes: int, count: int) -> None:
    assert parse_memory(text) == Devices("device", count, num_bytes)


@pytest.mark.parametrize("text", ["", "much", "80XB", "-3GB", "80", "0GB", "1e9"])
def test_memory_that_cannot_be(text: str) -> None:
    with pytest.raises(OptionError, match="--memory"):
        parse_memory(text)


def test_a_bare_number_is_asked_for_its_unit() -> None:
    with pytest.raises(OptionError, match="give a unit, such as 80GiB"):
        parse_bytes("--memory", "80")
