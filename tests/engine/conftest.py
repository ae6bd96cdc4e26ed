"""What the engine's tests share: loading a model small or real, as `load_engine` would."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from outdraft.catalog import ModelFiles
from outdraft.engine.loading import LoadedModel, load_model

Load = Callable[..., LoadedModel]


@pytest.fixture(scope="session")
def load() -> Load:
    """load(path, dtype="float32", quantization="none", megabytes=16) → LoadedModel."""

    def loaded(
        path: Path, dtype: str = "float32", quantization: str = "none", megabytes: int = 16
    ) -> LoadedModel:
        return load_model(
            ModelFiles(path.name, path),
            dtype=dtype,
            device="cpu",
            quantization=quantization,
            kv_cache_bytes=megabytes << 20,
            max_context=None,
            reuse_prefixes=False,
            on_layer=lambda done, total: None,
        )

    return loaded


@pytest.fixture
def set_threads() -> object:
    """Changes torch's thread count for one test."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)
