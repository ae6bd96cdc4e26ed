from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from outdraft import Speculation, load_engine
from outdraft.engine.engine import Engine
from outdraft.server.serve import Server
from outdraft.testing.tiny_models import tiny_model
from tests.server.serving import serving
from tests.server.wire import Wire

NGRAM = Speculation("ngram", k=4)
API_KEY = "sk-Sesame"


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("tiny") / "llama", "llama")


@pytest.fixture(scope="session")
def tiny_server(tiny_folder: Path) -> Iterator[tuple[str, Server]]:
    """One server with n-gram speculation for every test that only asks it something."""
    with serving(load_engine(str(tiny_folder), NGRAM, kv_cache_bytes=8 << 20)) as running:
        yield running


@pytest.fixture
def url(tiny_server: tuple[str, Server]) -> str:
    return tiny_server[0]


@pytest.fixture(scope="session")
def wire(tiny_server: tuple[str, Server]) -> Iterator[Wire]:
    """A client of that server, and its connections, for everybody."""
    wire = Wire(tiny_server[0])
    with wire.client:
        yield wire


@pytest.fixture(scope="session")
def plain_wire(tiny_folder: Path) -> Iterator[Wire]:
    """A client of a server without speculation."""
    with serving(load_engine(str(tiny_folder), kv_cache_bytes=8 << 20)) as (url, _):
        wire = Wire(url)
        with wire.client:
            yield wire


@pytest.fixture(scope="session")
def locked_url(tiny_folder: Path) -> Iterator[str]:
    """A server that asks for a key."""
    engine = load_engine(str(tiny_folder), kv_cache_bytes=1 << 20)
    with serving(engine, api_key=API_KEY) as (url, _):
        yield url


@pytest.fixture
def tiny_engine(tiny_folder: Path) -> Engine:
    """An engine of its own for a test that compares with it or breaks it."""
    return load_engine(str(tiny_folder), NGRAM, kv_cache_bytes=8 << 20)


@pytest.fixture(scope="session")
def reference(tiny_folder: Path) -> Engine:
    """The Python API without speculation: what every answer has to agree with."""
    return load_engine(str(tiny_folder), kv_cache_bytes=8 << 20)
