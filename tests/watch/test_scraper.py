"""Many replicas at once, some of them bad."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from threading import Event, Thread

import pytest

from outdraft.errors import BackendError
from outdraft.observe.fetch import open_session
from outdraft.observe.reading import Reading
from outdraft.watch.asking import Asking
from outdraft.watch.replicas import Replica, name_replicas
from outdraft.watch.scraper import Fetch, Scraper, Unreadable

PAGE = 'vllm:generation_tokens_total{model_name="m"} %d\n'


class VirtualTime:
    """Sleeping costs nothing. A question does not take any time either."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.slept: list[float] = []

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


def replicas(*names: str) -> list[Replica]:
    return [Replica(name, f"http://{name}") for name in names]


def reading(at: float = 0.0) -> Reading:
    return Reading(at, "vllm", {}, {})


def one_round(scraper: Scraper, *names: str) -> dict[str, Reading | Unreadable]:
    return asyncio.run(scraper.scrape(replicas(*names)))


async def good(replica: Replica, limit_s: float) -> Reading:
    return reading()


async def refusing(replica: Replica, limit_s: float) -> Reading:
    raise BackendError("connection refused")


def by_name(**fetches: Fetch) -> Fetch:
    def fetch(replica: Replica, limit_s: float) -> Awaitable[Reading]:
        return fetches[replica.name](replica, limit_s)

    return fetch


def test_readings_and_failures_as_they_are() -> None:
    async def broken(replica: Replica, limit_s: float) -> Reading:
        raise RecursionError("http://user:secret@h")

    virtual = VirtualTime()
    scraper = Scraper(
        by_name(a=good, b=refusing, c=broken), 5.0, clock=virtual.clock, sleep=virtual.sleep
    )
    assert one_round(scraper, "a", "b", "c") == {
        "a": reading(),
        "b": Unreadable("connection refused", 1_000.0),
        "c": Unreadable("its answer cannot be read (RecursionError)", 1_000.0),
    }
    assert one_round(scraper) == {}


def test_questions_are_spread_and_each_comes_at_its_own_time() -> None:
    virtual = VirtualTime()
    scraper = Scraper(good, 8.0, clock=virtual.clock, sleep=virtual.sleep)
    names = [f"replica-{number}:8000" for number in range(50)]
    one_round(scraper, *names)
    first = virtual.slept.copy()
    one_round(scraper, *names)
    assert virtual.slept == first + first
    assert len(set(first)) == 50
    assert 0 <= min(first) < 0.3
    assert 1.7 < max(first) <= 2.0


def test_one_that_fails_is_asked_less_and_less_often() -> None:
    virtual, asked = VirtualTime(), []

    async def fetch(replica: Replica, limit_s: float) -> Reading:
        if replica.name == "bad":
            asked.append(virtual.now)
            if virtual.now < 1_300:
                raise BackendError("connection refused")
        return reading(virtual.now)

    scraper = Scraper(fetch, 5.0, clock=virtual.clock, sleep=virtual.sleep)
    for _ in range(100):
        found = one_round(scraper, "good", "bad")
        assert found["good"] == reading(virtual.now)
        if isinstance(found["bad"], Unreadable):
            assert found["bad"] == Unreadable("connection refused", asked[-1]), "the last one stays"
        virtual.now += 5
    pauses = [after - before for before, after in pairwise(asked)]
    assert pauses[:5] == [5, 10, 20, 40, 60], "growing, up to a minute"
    assert max(pauses) == 60
    assert pauses[-20:] == 20 * [5], "as before once it answers"


def test_a_replica_that_went_starts_afresh() -> None:
    virtual = VirtualTime()
    scraper = Scraper(refusing, 5.0, clock=virtual.clock, sleep=virtual.sleep)
    one_round(scraper, "a")
    one_round(scraper, "b")
    virtual.now += 1
    assert one_round(scraper, "a")["a"] == Unreadable("connection refused", 1_001.0)


def test_a_slow_one_delays_nobody() -> None:
    async def slow(replica: Replica, limit_s: float) -> Reading:
        await asyncio.sleep(60)
        raise AssertionError

    read_after: list[float] = []

    async def quick(replica: Replica, limit_s: float) -> Reading:
        read_after.append(time.monotonic() - start)
        return reading()

    scraper = Scraper(by_name(a=quick, b=slow), 2.0)
    start = time.monotonic()
    found = one_round(scraper, "a", "b")
    assert isinstance(found["b"], Unreadable)
    assert found["b"].reason == "no whole answer within 1 s"
    assert time.monotonic() - start < 2, "before the next interval"
    assert read_after[0] < 0.9


def test_long_intervals_do_not_wait_for_minutes() -> None:
    limits: list[float] = []

    async def fetch(replica: Replica, limit_s: float) -> Reading:
        limits.append(limit_s)
        return reading()

    virtual = VirtualTime()
    one_round(Scraper(fetch, 600.0, clock=virtual.clock, sleep=virtual.sleep), "a")
    assert limits == [10]


Answer = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def http_server(pages: dict[str, Answer]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            pages[self.path](self)

        def log_message(self, *args: object) -> None: ...

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 100

        def handle_error(self, *args: object) -> None: ...

    with Server(("127.0.0.1", 0), Handler) as http:
        Thread(target=http.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{http.server_port}"
        finally:
            http.shutdown()


def writes(body: bytes) -> Answer:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


@pytest.mark.slow
def test_fifty_at_once_over_http_a_fifth_of_them_bad() -> None:
    """Garbage, 10 MB, a slow drip, no answer: the others are read as if these were not there."""
    ended = Event()

    def drips(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        while not ended.wait(0.05):
            handler.wfile.write(b"x 1\n")

    def never(handler: BaseHTTPRequestHandler) -> None:
        ended.wait(20)

    bad: dict[str, Answer] = {
        "garbage": writes(bytes(range(256)) * 40),
        "huge": writes(b"vllm:x 1\n" * (10 << 17)),
        "drips": drips,
        "never": never,
    }
    pages = {f"/bad{n}/{name}/metrics": bad[name] for n in range(3) for name in bad}
    pages |= {f"/good{n}/metrics": writes(PAGE.encode() % n) for n in range(38)}
    pages |= {path.replace("/metrics", "/version"): writes(b'{"version": "1"}') for path in pages}

    async def scrape(url: str) -> tuple[dict[str, Reading | Unreadable], float]:
        async with open_session() as session:
            found = name_replicas([url + path for path in pages if path.endswith("/metrics")])
            scraper = Scraper(Asking(session).fetch, 4.0)
            start = time.monotonic()
            return await scraper.scrape(found), time.monotonic() - start

    with http_server(pages) as url:
        found, seconds = asyncio.run(scrape(url))
        ended.set()
    assert len(found) == 50
    for name, each in found.items():
        path = name.partition("/")[2]
        if path.startswith("good"):
            assert isinstance(each, Reading), (name, each)
            number = float(path.removeprefix("good").removesuffix("/metrics"))
            assert each.counters == {"num_tokens": number}
            assert (each.model, each.version) == ("m", "1")
        else:
            assert isinstance(each, Unreadable), name
            reasons = {
                "garbage": "binary data, not metrics",
                "huge": "a page of more than 4 MiB, which is not read",
                "drips": "no whole answer within 2 s",
                "never": "no whole answer within 2 s",
            }
            assert each.reason == reasons[path.split("/")[1]]
    assert seconds < 4, "all is done within the interval"


def test_the_version_is_asked_for_rarely_and_after_a_restart() -> None:
    served = {"tokens": 10, "version": "1", "versions": 0, "slow": 0}
    virtual = VirtualTime()

    def metrics(handler: BaseHTTPRequestHandler) -> None:
        writes(PAGE.encode() % served["tokens"])(handler)

    def version(handler: BaseHTTPRequestHandler) -> None:
        served["versions"] = int(served["versions"]) + 1
        time.sleep(float(served["slow"]))
        writes(json.dumps({"version": served["version"]}).encode())(handler)

    async def ask(url: str) -> list[str | None]:
        seen: list[str | None] = []
        async with open_session() as session:
            asking = Asking(session, clock=virtual.clock)
            for tokens, later_s, slow in (
                (20, 5, 0.0), (30, 5, 0.0), (5, 5, 0.0), (6, 700, 0.0), (7, 700, 3.0), (8, 5, 0.0),
            ):  # fmt: skip
                served.update(tokens=tokens, slow=slow)
                if tokens == 5:
                    served.update(version="2")
                virtual.now += later_s
                seen.append((await asking.fetch(Replica("a", url), 1.0)).version)
        return seen

    with http_server({"/metrics": metrics, "/version": version}) as url:
        assert asyncio.run(ask(url)) == ["1", "1", "2", "2", "2", "2"]
    assert served["versions"] == 4, "at first, after the restart, and twice after ten minutes"


def test_a_server_without_a_version() -> None:
    async def ask(url: str) -> Reading:
        async with open_session() as session:
            return await Asking(session).fetch(Replica("a", url), 1.0)

    with http_server({"/metrics": writes(PAGE.encode() % 1), "/version": writes(b"?")}) as url:
        assert asyncio.run(ask(url)).version is None


def test_the_model_of_a_llamacpp_is_on_another_page() -> None:
    async def ask(url: str) -> list[tuple[str | None, str | None]]:
        async with open_session() as session:
            asking = Asking(session)
            found = [await asking.fetch(Replica("a", url), 1.0) for _ in range(2)]
            return [(each.model, each.version) for each in found]

    about = json.dumps({"build_info": "b9", "model_path": "/m/8b.gguf"}).encode()
    page = b"llamacpp:tokens_predicted_total 90\n"
    with http_server({"/metrics": writes(page), "/props": writes(about)}) as url:
        assert asyncio.run(ask(url)) == 2 * [("/m/8b.gguf", "b9")]


COUNTERS = b"llamacpp:tokens_predicted_total 90\nllamacpp:spec_decode_num_draft_tokens_total 0\n"


@pytest.mark.parametrize(
    ("slots", "page", "speculates"),
    [
        ([{"speculative": True}, {"speculative": True}], COUNTERS, True),
        ([{"speculative": False}], COUNTERS, False),
        ([{"speculative": True}], b"llamacpp:tokens_predicted_total 90\n", False),  # none counted
        ([{"speculative": False}], COUNTERS.replace(b" 0", b" 7"), True),
        ([{"id": 0}], COUNTERS, False),
        ([], COUNTERS, False),
        ({"error": {"code": 501}}, COUNTERS, False),
        (["x", 3], COUNTERS, False),
    ],
)
def test_a_llamacpp_that_drafted_nothing_yet_is_asked_whether_it_would(
    slots: object, page: bytes, speculates: bool
) -> None:
    async def ask(url: str) -> list[bool]:
        async with open_session() as session:
            asking = Asking(session)
            return [(await asking.fetch(Replica("a", url), 1.0)).speculates for _ in range(2)]

    pages = {"/metrics": page, "/slots": json.dumps(slots).encode()}
    with http_server({name: writes(body) for name, body in pages.items()}) as url:
        assert asyncio.run(ask(url)) == 2 * [speculates]


@pytest.mark.parametrize("name", ["a", "", "é"])
def test_any_name_has_a_moment(name: str) -> None:
    virtual = VirtualTime()
    one_round(Scraper(good, 5.0, clock=virtual.clock, sleep=virtual.sleep), name)
    assert 0 <= virtual.slept[0] <= 1.25
