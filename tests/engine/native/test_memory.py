"""Memory for weights in large pages."""

import gc
from pathlib import Path

import torch

from outdraft.engine.native.memory import HugePages, return_freed_memory


def test_parts_of_a_chunk_do_not_overlap_and_are_aligned() -> None:
    pages = HugePages()
    parts = [pages.take(size) for size in (100, 1, 4096, 70)]
    for index, part in enumerate(parts):
        part.fill_(index + 1)
    assert [part.unique().tolist() for part in parts] == [[1], [2], [3], [4]]
    assert all(part.data_ptr() % 64 == 0 for part in parts)


def test_what_does_not_fit_gets_a_chunk_of_its_own() -> None:
    pages = HugePages()
    first, large = pages.take(10), pages.take(65 << 20)
    large[-1] = 7
    assert first.tolist() == [0] * 10
    assert large.shape == (65 << 20,)


def test_a_chunk_is_freed_with_its_last_tensor() -> None:
    pages = HugePages()
    first, second = pages.take(10), pages.take(10)
    chunk = pages._chunk
    assert chunk is not None
    del first
    gc.collect()
    assert chunk() is not None
    second.fill_(1)
    del second
    gc.collect()
    assert chunk() is None
    assert torch.equal(pages.take(3), torch.zeros(3, dtype=torch.uint8))


def test_what_was_freed_goes_back_to_the_system() -> None:
    def resident_bytes() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    matrices = [torch.ones(100_000, dtype=torch.uint8) for _ in range(1000)]
    kept = matrices[-1]  # above the others: without a word, the heap keeps what lies below
    held = resident_bytes()
    del matrices
    return_freed_memory()
    assert held - resident_bytes() > 50_000_000
    assert kept.sum() == 100_000
