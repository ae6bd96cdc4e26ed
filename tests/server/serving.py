"""A real server in this process, for the length of a `with`."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from outdraft.engine.engine import Engine
from outdraft.server.serve import EngineThread, Server, bind


@contextmanager
def serving(engine: Engine, **options: Any) -> Iterator[tuple[str, Server]]:
    """Its address and the server itself; `options` are those of `Server`.

    The engine belongs to the server's thread meanwhile: ask it over HTTP only.
    """
    ready = threading.Event()
    settings: dict[str, Any] = {"model_names": ("tiny",), "on_ready": ready.set, **options}
    with bind("127.0.0.1", 0) as at:
        server = Server(engine, thread=EngineThread(), **settings)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [at]}, name="server")
        thread.start()
        try:
            if not ready.wait(timeout=30):
                raise RuntimeError("the server did not come up within 30 seconds")
            host, port = at.getsockname()
            yield f"http://{host}:{port}", server
        finally:
            server.end()
            thread.join(timeout=60)
            if thread.is_alive():
                raise RuntimeError("the server did not stop within 60 seconds")
