from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from outdraft.errors import OptionError
from outdraft.observe.page import parse_samples
from outdraft.watch.site import Site
from tests.watch.sample_snapshot import sample_snapshot

Work = Callable[[aiohttp.ClientSession, str], Awaitable[Any]]
HERE = ("127.0.0.1", 0)


def served(site: Site, work: Work) -> Any:
    async def run() -> Any:
        async with site.serve(HERE) as url, aiohttp.ClientSession() as client:
            return await work(client, url)

    return asyncio.run(run())


def shown(*, has_page: bool = True) -> Site:
    site = Site(has_page=has_page, refresh_s=5)
    site.show(sample_snapshot())
    return site


async def get(client: aiohttp.ClientSession, url: str) -> tuple[int, Any, str]:
    async with client.get(url) as answer:
        return answer.status, answer.headers, await answer.text()


def test_what_is_served() -> None:
    async def work(client: aiohttp.ClientSession, url: str) -> None:
        status, headers, text = await get(client, f"{url}/metrics")
        assert status == 200
        assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
        assert any(name == "outdraft_watch_net_benefit" for name, _, _ in parse_samples(text))
        _, headers, text = await get(client, f"{url}/")
        assert "TURN OFF FOR" in text
        assert headers["Content-Type"] == "text/html; charset=utf-8"
        _, headers, text = await get(client, f"{url}/snapshot.json")
        assert json.loads(text)["fleet"]["advice"]["words"].startswith("TURN OFF FOR")
        _, headers, _ = await get(client, f"{url}/watch.js")
        assert headers["Content-Type"].startswith("text/javascript")

    served(shown(), work)


@pytest.mark.parametrize("path", ["/", "/metrics", "/watch.js", "/snapshot.json", "/nowhere"])
def test_every_answer_has_the_headers(path: str) -> None:
    async def work(client: aiohttp.ClientSession, url: str) -> None:
        _, headers, _ = await get(client, url + path)
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe-inline'; script-src 'self'" in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Cache-Control"] == "no-store"

    served(shown(), work)


def test_only_metrics_without_the_page() -> None:
    async def work(client: aiohttp.ClientSession, url: str) -> list[int]:
        return [(await get(client, url + path))[0] for path in ("/metrics", "/", "/snapshot.json")]

    assert served(shown(has_page=False), work) == [200, 404, 404]


async def status_for(client: aiohttp.ClientSession, url: str, host: str) -> int:
    async with client.get(url, headers={"Host": host}) as answer:
        return answer.status


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("localhost:9180", 200),
        ("LOCALHOST.:9180", 200),
        ("watch.localhost", 200),
        ("127.0.0.1:80", 200),
        ("[::1]:9180", 200),
        ("10.0.0.7", 200),  # no name that could be made to lead here
        (socket.gethostname(), 200),
        ("evil.example", 421),
        ("evil.example:9180", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("evil@127.0.0.1.evil.example", 421),
        ("", 421),
    ],
)
@pytest.mark.parametrize("path", ["/", "/metrics", "/snapshot.json", "/watch.js"])
def test_only_our_own_names_are_answered(path: str, host: str, status: int) -> None:
    """A page of somebody else whose name was made to lead here reads nothing."""

    async def work(client: aiohttp.ClientSession, url: str) -> int:
        return await status_for(client, url + path, host)

    assert served(shown(), work) == status


def test_where_others_may_read_metrics_a_scraper_may_use_any_name() -> None:
    async def run(host: str) -> list[int]:
        app = shown().app(host)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            async with aiohttp.ClientSession() as client:
                return [
                    await status_for(client, url + path, asked)
                    for path in ("/metrics", "/")
                    for asked in ("watch.monitoring:9180", "gpu-box:9180", "10.0.0.5")
                ]
        finally:
            await runner.cleanup()

    assert asyncio.run(run("0.0.0.0")) == [200, 200, 200, 421, 421, 200]
    assert asyncio.run(run("gpu-box")) == [200, 200, 200, 421, 200, 200]
    assert asyncio.run(run("localhost")) == [421, 421, 200, 421, 421, 200]


def test_before_the_first_look_and_other_methods() -> None:
    async def work(client: aiohttp.ClientSession, url: str) -> list[int]:
        first = [(await get(client, url + path))[0] for path in ("/metrics", "/")]
        async with client.post(f"{url}/") as answer:
            return [*first, answer.status]

    assert served(Site(has_page=True, refresh_s=5), work) == [503, 503, 405]


def test_an_address_that_is_taken() -> None:
    async def run(port: int) -> None:
        async with Site(has_page=False, refresh_s=5).serve(("127.0.0.1", port)):
            pass

    with socket.create_server(HERE) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OptionError, match=f"cannot serve at 127.0.0.1:{port}"):
            asyncio.run(run(port))
