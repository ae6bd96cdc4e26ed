"""Against a real HTTP server on this machine."""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from aiohttp import web

from outdraft.watch.events import Told
from outdraft.watch.findings import Notice
from outdraft.watch.webhook import SIGNATURE, TIMESTAMP, Webhook, signature

SECRET = "a secret"
QUICK = (0.01, 0.01, 0.01)


def event(number: int) -> Told:
    return Told(number, Notice(float(number), "advice", "", "TURN OFF"))


@dataclass
class Receiver:
    answer: Callable[[int], Awaitable[web.StreamResponse]]  # by how many came before
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    elsewhere: int = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        app = web.Application()
        app.router.add_post("/hook", self._take)
        app.router.add_route("*", "/elsewhere", self._redirected)
        runner = web.AppRunner(app, shutdown_timeout=0.1)  # not until the last answer is given
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        try:
            yield f"http://user:password@127.0.0.1:{port}/hook?token=abc"
        finally:
            await runner.cleanup()

    async def _take(self, request: web.Request) -> web.StreamResponse:
        self.got.append((dict(request.headers), await request.read()))
        return await self.answer(len(self.got) - 1)

    async def _redirected(self, request: web.Request) -> web.StreamResponse:
        self.elsewhere += 1
        return web.Response()


def deliver(
    answer: Callable[[int], Awaitable[web.StreamResponse]], *events: Told, limit_s: float = 5.0
) -> tuple[Receiver, Webhook]:
    """Posts the events and waits until none of them waits."""
    receiver = Receiver(answer)

    async def all_of_them() -> Webhook:
        async with receiver.running() as url:
            hook = Webhook(url, SECRET, limit_s=limit_s, pauses_s=QUICK)
            for each in events:
                hook.post(each)
            task = asyncio.create_task(hook.run())
            while hook.num_waiting:
                await asyncio.sleep(0.005)
            task.cancel()
            return hook

    return receiver, asyncio.run(all_of_them())


async def taken(_: int) -> web.StreamResponse:
    return web.Response(status=204)


def test_the_receiver_can_check_the_signature() -> None:
    receiver, hook = deliver(taken, event(1), event(2))
    assert [json.loads(body)["number"] for _, body in receiver.got] == [1, 2]
    headers, body = receiver.got[0]
    expected = hmac.new(SECRET.encode(), headers[TIMESTAMP].encode() + b"." + body, "sha256")
    assert headers[SIGNATURE] == "sha256=" + expected.hexdigest()
    assert headers[SIGNATURE] == signature(SECRET, headers[TIMESTAMP], body)
    assert headers["Authorization"].startswith("Basic ")
    assert (hook.delivered, hook.num_lost, hook.problem) == (2, 0, "")


def test_an_error_is_tried_again_until_it_is_taken() -> None:
    async def answer(before: int) -> web.StreamResponse:
        return web.Response(status=500 if before < 2 else 200)

    receiver, hook = deliver(answer, event(1))
    assert len(receiver.got) == 3
    assert (hook.delivered, hook.num_lost, hook.problem) == (1, 0, "")


def test_what_is_never_taken_is_given_up_and_the_next_one_sent() -> None:
    async def answer(before: int) -> web.StreamResponse:
        return web.Response(status=503 if before < 4 else 200)

    receiver, hook = deliver(answer, event(1), event(2))
    assert [json.loads(body)["number"] for _, body in receiver.got] == [1, 1, 1, 1, 2]
    assert (hook.delivered, hook.num_lost) == (2, 1)


def test_a_refusal_is_not_tried_again() -> None:
    async def answer(before: int) -> web.StreamResponse:
        return web.Response(status=403)

    receiver, hook = deliver(answer, event(1))
    assert len(receiver.got) == 1
    assert (hook.problem, hook.num_lost) == ("http 403", 1)


def test_a_redirect_is_not_followed() -> None:
    async def answer(before: int) -> web.StreamResponse:
        return web.Response(status=307, headers={"Location": "/elsewhere"})

    receiver, hook = deliver(answer, event(1))
    assert receiver.elsewhere == 0
    assert hook.problem == "it redirects (http 307), which is not followed"


def test_one_that_hangs_costs_its_time_limit_and_no_more() -> None:
    async def answer(before: int) -> web.StreamResponse:
        if before < 2:
            await asyncio.sleep(30)
        return web.Response()

    receiver, hook = deliver(answer, event(1), limit_s=0.1)
    assert len(receiver.got) == 3
    assert (hook.problem, hook.delivered) == ("", 1)


def test_an_endless_answer_is_not_read() -> None:
    async def answer(before: int) -> web.StreamResponse:
        return web.Response(body=b"x" * (1 << 20))

    _, hook = deliver(answer, event(1))
    assert hook.problem == ""


def test_what_waits_is_bounded_and_no_password_is_shown() -> None:
    hook = Webhook("http://user:password@127.0.0.1:9/h?token=abc", SECRET, max_waiting=10)
    for number in range(25):
        hook.post(event(number))
    assert (hook.num_waiting, hook.num_lost) == (10, 15)
    assert hook.name == "http://127.0.0.1:9"


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://hooks.slack.com/services/T024/B024/secret", "https://hooks.slack.com"),
        ("https://u:secret@discord.com:8443/api/webhooks/1/secret", "https://discord.com:8443"),
        ("http://[::1]:9/secret@more?secret#secret", "http://[::1]:9"),
    ],
)
def test_the_path_may_be_the_secret_and_is_not_shown(url: str, name: str) -> None:
    assert Webhook(url, None).name == name


def test_nobody_there_is_a_problem_in_words_without_the_address() -> None:
    async def tried() -> Webhook:
        hook = Webhook("http://user:password@127.0.0.1:9/h", None, pauses_s=())
        hook.post(event(1))
        task = asyncio.create_task(hook.run())
        while hook.num_waiting:
            await asyncio.sleep(0.005)
        task.cancel()
        return hook

    hook = asyncio.run(tried())
    assert hook.problem.startswith("it could not be reached")
    assert "password" not in hook.problem
