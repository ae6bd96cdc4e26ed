"""Runs the application: socket, signals, draining, and the reason of a failure."""

import asyncio
import socket
from collections.abc import Callable
from types import FrameType

import uvicorn

from outdraft.engine.engine import Engine
from outdraft.errors import OptionError
from outdraft.server.app import create_app
from outdraft.server.canary import Canary as Canary
from outdraft.server.engine_thread import EngineThread as EngineThread
from outdraft.server.loop import EngineLoop
from outdraft.server.metrics import Metrics
from outdraft.server.service import Service

_KEEP_ALIVE_S = 75  # longer than common clients keep an idle connection
_MAX_CONNECTIONS = 8192
_LAST_BYTES_S = 10  # to send the rest of finished answers


def bind(host: str, port: int) -> socket.socket:
    """Reserves the address before a model is loaded; connections are not accepted yet."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    taken = socket.socket(family, socket.SOCK_STREAM)
    try:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind((host, port))
    except (OSError, OverflowError, UnicodeError) as error:
        taken.close()
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise OptionError(
            f"cannot serve at {host}:{port} ({reason}); choose another --host or --port"
        ) from error
    return taken


class Server(uvicorn.Server):
    """`run(sockets=[…])` serves until a signal: the first one drains, the second ends at once.

    Afterwards `failure` is why the engine stopped, if it failed.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        model_names: tuple[str, ...],
        thread: EngineThread,
        api_key: str | None = None,
        max_open: int = 272,
        drain_s: float = 30.0,
        always_metrics: bool = False,
        can_forget: bool = False,
        admin_key: str | None = None,
        canary: Canary | None = None,
        access_log: bool = False,
        on_ready: Callable[[], None] = lambda: None,
        on_drain: Callable[[int], None] = lambda num_open: None,
    ) -> None:
        """`max_open` texts may be written or wait at once, and get `drain_s` seconds at shutdown.

        `thread` is where the engine was loaded: in another one it is slower.
        """
        costs = thread.submit(engine.measure_costs).result()
        metrics = Metrics(engine, model_names[0], costs)
        loop = EngineLoop(
            engine,
            metrics,
            thread,
            max_open=max_open,
            canary=canary or Canary(0.0),
            on_failure=self.end,
        )
        self._service = Service(engine, loop, metrics, model_names, always_metrics, can_forget)
        self._drain_s = drain_s
        self._on_ready = on_ready
        self._on_drain = on_drain
        self._draining: asyncio.Task[None] | None = None
        self._events: asyncio.AbstractEventLoop | None = None
        config = uvicorn.Config(
            create_app(self._service, api_key=api_key, admin_key=admin_key),
            log_config=None,
            access_log=access_log,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_LAST_BYTES_S,
            limit_concurrency=_MAX_CONNECTIONS,
            server_header=False,
        )
        super().__init__(config)

    @property
    def failure(self) -> str | None:
        return self._service.loop.failure

    def end(self) -> None:
        """Stops serving; open requests fail. May be called from any thread."""
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._events = asyncio.get_running_loop()
        await super().startup(sockets)
        if not self.should_exit:
            self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        if self.force_exit:  # uvicorn skips this; ending a thread inside torch may crash
            await self.lifespan.shutdown()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # Called between two instructions of the main thread: do as little as possible.
        if self._service.is_draining or self._events is None:
            self.should_exit = self.force_exit = True
            return
        self._service.is_draining = True
        self._events.call_soon_threadsafe(self._start_draining)

    def _start_draining(self) -> None:
        self._draining = asyncio.ensure_future(self._drain())

    async def _drain(self) -> None:
        loop = self._service.loop
        try:
            self._on_drain(loop.num_open)
            async with asyncio.timeout(self._drain_s):
                await loop.drained()
        except TimeoutError:
            loop.stop()  # open requests fail
        finally:  # a drain always ends the server
            self.should_exit = True
