"""What the watch serves by HTTP: its metrics and, with `--ui`, its page. It only ever reads."""

from __future__ import annotations

import ipaddress
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from yarl import URL

from outdraft.errors import OptionError
from outdraft.watch.metrics import CONTENT_TYPE, metrics_page
from outdraft.watch.page import script, watch_page
from outdraft.watch.snapshot import Snapshot
from outdraft.watch.trail import Trail

# The page runs its own script and fetches itself, nothing else, whatever names it shows.
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'self'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}

Page = Callable[[Snapshot], tuple[str, str]]  # the text and its type


class Site:
    """Holds the newest snapshot; pages are made when somebody asks."""

    def __init__(self, *, has_page: bool, refresh_s: float, trail: Trail | None = None) -> None:
        """`trail`: of an earlier watch, which its charts begin with."""
        self._has_page = has_page
        self._refresh_s = refresh_s
        self._trail = trail or Trail()
        self._snapshot: Snapshot | None = None  # None: before the first look

    def show(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        if self._has_page:
            self._trail.add(snapshot)

    def app(self, host: str = "127.0.0.1") -> web.Application:
        """`host`: at which it is served."""
        guards = [_with_headers, _only_for(host)]
        app = web.Application(middlewares=guards, client_max_size=1024)
        pages: dict[str, Page] = {
            "/metrics": lambda snapshot: (metrics_page(snapshot), CONTENT_TYPE),
        }
        if self._has_page:
            pages["/"] = lambda snapshot: (
                watch_page(snapshot, self._trail, self._refresh_s),
                "text/html; charset=utf-8",
            )
            pages["/snapshot.json"] = lambda snapshot: (
                json.dumps(snapshot.to_json()),
                "application/json",
            )
            app.router.add_get("/watch.js", _script)
        for path, make in pages.items():
            app.router.add_get(path, self._handler(make))
        return app

    def _handler(self, make: Page) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            if self._snapshot is None:
                raise web.HTTPServiceUnavailable(text="nothing was looked at yet\n")
            text, content_type = make(self._snapshot)
            return _response(text, content_type)

        return handle

    @asynccontextmanager
    async def serve(self, address: tuple[str, int]) -> AsyncIterator[str]:
        """Yields the URL. OptionError where the address cannot be had."""
        host, port = address
        runner = web.AppRunner(self.app(host), access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        try:
            try:
                await web.TCPSite(runner, host, port).start()
            except OSError as error:
                raise OptionError(
                    f"cannot serve at {host}:{port} ({error.strerror}); give another --listen"
                ) from error
            taken = runner.addresses[0][1]
            yield f"http://{f'[{host}]' if ':' in host else host}:{taken}"
        finally:
            await runner.cleanup()


def is_expected(asked: str, host: str) -> bool:
    """Whether a browser that asks for this host means us. A page of somebody else, whose name was
    made to lead here after it was loaded, asks for that name; addresses cannot be taken over so."""
    try:
        name = (URL(f"http://{asked}").host or "").lower().rstrip(".")
    except ValueError:
        return False
    known = ("localhost", host.lower(), socket.gethostname().lower())
    return _is_address(name) or name in known or name.endswith(".localhost")


def _only_for(host: str) -> Middleware:
    """Where others may read metrics, a Prometheus may ask for them by whatever name it knows."""
    is_open = not (host.lower() == "localhost" or _is_address(host, is_own=True))

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        is_free = is_open and request.path == "/metrics"
        if not is_free and not is_expected(request.headers.get("Host", ""), host):
            words = "not served under this name: use an address, localhost or the name of --listen"
            raise web.HTTPMisdirectedRequest(text=f"{words}\n")
        return await handler(request)

    return guard


def _is_address(name: str, *, is_own: bool = False) -> bool:
    """`is_own`: one that only this machine reaches."""
    try:
        found = ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return found.is_loopback or not is_own


async def _script(request: web.Request) -> web.Response:
    return _response(script(), "text/javascript; charset=utf-8")


def _response(text: str, content_type: str) -> web.Response:
    # Halves of surrogates, which a name from JSON may have, are no UTF-8.
    return web.Response(
        body=text.encode("utf-8", "replace"), headers={"Content-Type": content_type}
    )


@web.middleware
async def _with_headers(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        response = await handler(request)
    except web.HTTPException as refused:
        refused.headers.update(_HEADERS)
        raise
    response.headers.update(_HEADERS)
    return response
