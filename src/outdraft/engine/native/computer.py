"""The threads of the compiled library."""

from __future__ import annotations

import os
import threading
from typing import Any

import torch

from outdraft.engine.native.library import CBatch, CDraws, CModel, CProduct, library


class Computer:
    """The threads that compute, and the memory in which they do. One step at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._key: tuple[int, int] | None = None  # process and threads
        self._pool: int | None = None
        self._space: int | None = None

    def step(self, model: CModel, batch: CBatch) -> None:
        with self._lock:
            lib, pool = self._ready()
            _check(lib.run_step(model, batch, self._space, pool))

    def multiply(self, product: CProduct, inputs: torch.Tensor, outputs: torch.Tensor) -> None:
        with self._lock:
            lib, pool = self._ready()
            where = inputs.data_ptr(), outputs.data_ptr()
            _check(lib.run_product(product, len(inputs), *where, self._space, pool))

    def draw(self, draws: CDraws) -> None:
        with self._lock:
            lib, pool = self._ready()
            _check(lib.draw_rows(draws, pool))

    def _ready(self) -> tuple[Any, int | None]:
        lib = library()
        assert lib is not None
        key = os.getpid(), torch.get_num_threads()
        if key != self._key:
            if self._pool is not None and self._key is not None and self._key[0] == key[0]:
                lib.pool_close(self._pool)  # threads of another process are not ours to end
            self._pool = lib.pool_open(key[1])
            self._space = self._space or lib.space_open()
            self._key = key
        return lib, self._pool


def _check(failed: int) -> None:
    if failed:
        raise MemoryError("no memory for a step")


computer = Computer()
