"""A pool computes every chunk of every phase once, phase after phase, whoever is late."""

from __future__ import annotations

import ctypes
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import CFUNCTYPE, POINTER, Structure, c_int, c_int32, c_void_p
from typing import Any

import pytest

from outdraft.engine.native import library as native

pytestmark = pytest.mark.skipif(native.library() is None, reason="the library is not compiled here")

Compute = CFUNCTYPE(None, c_void_p, c_int, c_int, c_int)


class CPhase(Structure):
    _fields_ = [("compute", Compute), ("argument", c_int32), ("num_chunks", c_int32)]


@contextmanager
def opened(threads: int) -> Iterator[tuple[Any, c_void_p]]:
    library = ctypes.CDLL(native.library()._name)
    library.pool_open.restype = c_void_p
    library.pool_phases.restype = POINTER(CPhase)
    pool = c_void_p(library.pool_open(threads))
    try:
        yield library, pool
    finally:
        library.pool_close(pool)


def run(library: Any, pool: c_void_p, chunks: list[int], compute: Callable[..., None]) -> None:
    """A job of phases with so many chunks each."""
    phases = library.pool_phases(pool, len(chunks))
    call = Compute(compute)
    for at, num_chunks in enumerate(chunks):
        phases[at] = CPhase(call, at, num_chunks)
    library.pool_run(pool, len(chunks), None)


@pytest.mark.parametrize("threads", [1, 2, 3, 5])
def test_every_chunk_once_and_phases_in_order(threads: int) -> None:
    pick = random.Random(threads)
    done: list[tuple[int, int]] = []

    def compute(job: object, phase: int, chunk: int, thread: int) -> None:
        if pick.random() < 0.02:
            time.sleep(0.001)
        done.append((phase, chunk))

    with opened(threads) as (library, pool):
        for _ in range(60):
            chunks = [pick.choice((1, 1, 2, 3, 7, 40)) for _ in range(pick.randint(1, 12))]
            done.clear()
            run(library, pool, chunks, compute)
            assert Counter(done) == Counter(
                (phase, chunk) for phase, count in enumerate(chunks) for chunk in range(count)
            )
            assert [phase for phase, _ in done] == sorted(phase for phase, _ in done)


def test_the_share_of_a_late_thread_is_taken_by_others() -> None:
    """One chunk takes until all others of the phase are computed."""
    others = threading.Semaphore(0)
    by_thread: dict[int, set[int]] = {0: set(), 1: set()}

    def compute(job: object, phase: int, chunk: int, thread: int) -> None:
        by_thread[thread].add(chunk)
        if chunk == 10:  # the first of the second share
            for _ in range(19):
                assert others.acquire(timeout=20)
        else:
            others.release()

    with opened(2) as (library, pool):
        run(library, pool, [20], compute)
    [slow] = [thread for thread, chunks in by_thread.items() if 10 in chunks]
    assert by_thread[slow] | by_thread[1 - slow] == set(range(20))
    assert by_thread[1 - slow] >= set(range(11, 20))


def test_a_thread_begins_with_its_own_share() -> None:
    """Chunks of one thread lie together, as far as the other one keeps up."""
    both = threading.Barrier(2)
    first: dict[int, int] = {}

    def compute(job: object, phase: int, chunk: int, thread: int) -> None:
        if thread not in first:
            first[thread] = chunk
            both.wait(timeout=20)

    with opened(2) as (library, pool):
        run(library, pool, [20], compute)
    assert first == {0: 0, 1: 10}
