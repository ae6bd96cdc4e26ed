"""Readings from the API of a Prometheus server: a fake of it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, TypeVar
from urllib.parse import parse_qs

import pytest

from outdraft.errors import BackendError
from outdraft.observe.fetch import open_session
from outdraft.observe.reading import Reading
from outdraft.watch.history import Histories
from outdraft.watch.prometheus import PrometheusSource
from outdraft.watch.scraper import Unreadable

NOW = 1_700_000_000.0
TOKENS = "vllm:generation_tokens_total"


class FakePrometheus:
    """Scrapes every 15 s since always: 10 tokens a second by each instance. One of them left."""

    def __init__(self, scrape_s: float = 15.0) -> None:
        self.scrape_s = scrape_s
        self.instances = {"a:8000": NOW + 1e6, "b:8000": NOW + 1e6}  # until when
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.headers: list[Mapping[str, str]] = []
        self.answer: bytes | None = None
        self.status = 200

    def value(self, name: str, at: float) -> float:
        return 3.0 if "running" in name else 10 * (at - NOW + 1e6)

    def series(self) -> Iterator[tuple[dict[str, str], str]]:
        for instance in self.instances:
            for name, labels in (
                (TOKENS, {}),
                ("vllm:num_requests_running", {}),
                ("vllm:spec_decode_num_draft_tokens_total", {}),
                ("vllm:time_to_first_token_seconds_bucket", {"le": "0.5"}),
                ("vllm:time_to_first_token_seconds_bucket", {"le": "+Inf"}),
            ):
                metric = {"__name__": name, "instance": instance, "job": "vllm", "engine": "0"}
                yield {**metric, "model_name": 'm"x', **labels}, instance

    def respond(self, path: str, form: dict[str, str]) -> bytes:
        self.asked.append((path, form))
        if self.answer is not None:
            return self.answer
        if path == "/api/v1/query":
            lookback = float(form["query"].rpartition("[")[2].removesuffix("s]"))
            end, step = float(form["time"]), self.scrape_s
            first = (end - lookback) // step * step + step
        else:
            first, end, step = (float(form[key]) for key in ("start", "end", "step"))
            assert (end - first) / step <= 11_000
        result = []
        for metric, instance in self.series():
            until = min(end, self.instances[instance])
            times = [first + step * n for n in range(int((until - first) // step) + 1)]
            values = [[at, str(self.value(metric["__name__"], at))] for at in times]
            if values:
                result.append({"metric": metric, "values": values})
        data = {"resultType": "matrix", "result": result}
        return json.dumps({"status": "success", "data": data}).encode()


@contextmanager
def serving(fake: FakePrometheus) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            fake.headers.append(dict(self.headers))
            form = {key: value[0] for key, value in parse_qs(body).items()}
            answer = fake.respond(self.path, form)
            self.send_response(fake.status)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        Thread(target=http.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{http.server_port}"
        finally:
            http.shutdown()


Result = TypeVar("Result")


def ask(
    fake: FakePrometheus, question: Callable[[PrometheusSource], Awaitable[Result]], **options: Any
) -> Result:
    async def run(url: str) -> Result:
        async with open_session() as session:
            return await question(PrometheusSource(session, url, **options))

    with serving(fake) as url:
        return asyncio.run(run(url))


def test_the_last_scrape_of_each_instance() -> None:
    fake = FakePrometheus()
    found = ask(fake, lambda source: source.latest(NOW + 7))
    assert [*found] == ["a:8000", "b:8000"]
    reading = found["a:8000"]
    assert isinstance(reading, Reading)
    assert (reading.at, reading.engine) == ((NOW + 7) // 15 * 15, "vllm")
    assert reading.counters == {"num_tokens": fake.value(TOKENS, reading.at)}
    assert reading.gauges == {"running_requests": 3}
    assert reading.times["ttft"].bounds[0] == 0.5
    assert reading.speculates
    assert reading.model == r"m\"x"


def test_only_the_names_that_are_needed_of_the_replicas_that_are_chosen() -> None:
    fake = FakePrometheus()
    ask(fake, lambda source: source.latest(NOW), selector='{job="vllm",zone=~"a|b"}')
    query = fake.asked[0][1]["query"]
    assert re.fullmatch(r'\{__name__=~"[\w:|]+",job="vllm",zone=~"a\|b"\}\[150s\]', query)
    assert TOKENS in query
    assert "process_start_time_seconds" not in query, "every process has one"
    ask(fake, lambda source: source.latest(NOW))
    assert fake.asked[1][1]["query"].endswith('"}[150s]')


def test_gaps_are_measured_by_the_scrapes_of_prometheus() -> None:
    async def watch(source: PrometheusSource) -> Histories:
        histories = Histories(5.0)
        for step in range(40):
            now = NOW + 5 * step
            histories.update(await source.latest(now), now, source.apart_s)
        return histories

    histories = ask(FakePrometheus(scrape_s=30.0), watch)
    window = histories["a:8000"].window(600, NOW + 195)
    assert window is not None
    assert (window.gap_s, window.num_restarts) == (0, 0)
    assert window.counters["num_tokens"] == 10 * window.seconds
    assert window.seconds == 210


def test_a_replica_that_left() -> None:
    fake = FakePrometheus()
    fake.instances["b:8000"] = NOW

    async def twice(source: PrometheusSource) -> list[dict[str, Reading | Unreadable]]:
        return [await source.latest(NOW + passed) for passed in (10, 60, 200, 900)]

    first, second, third, last = ask(fake, twice)
    assert isinstance(first["b:8000"], Reading)
    gone = Unreadable("Prometheus has no newer samples of it", NOW // 15 * 15)
    assert second["b:8000"] == third["b:8000"] == gone
    assert isinstance(second["a:8000"], Reading)
    assert "b:8000" in last, "named once more, then forgotten"


def test_two_jobs_with_one_instance() -> None:
    class Two(FakePrometheus):
        def series(self) -> Iterator[tuple[dict[str, str], str]]:
            for metric, instance in super().series():
                yield metric, instance
                if instance == "a:8000":
                    yield {**metric, "job": "other"}, instance

    found = ask(Two(), lambda source: source.latest(NOW))
    assert [*found] == ["other/a:8000", "vllm/a:8000", "b:8000"]


@pytest.mark.parametrize("since_s", [300.0, 3600.0, 24 * 3600.0])
def test_the_past_is_as_coarse_as_a_history(since_s: float) -> None:
    fake = FakePrometheus()

    async def read(source: PrometheusSource) -> tuple[list[tuple[float, float]], Histories]:
        steps, histories = [], Histories(5.0)
        async for step_s, look in source.past(since_s, NOW):
            at = max(each.at for each in look.values())
            steps.append((at, step_s))
            histories.update(look, at, step_s)
        histories.update(await source.latest(NOW), NOW, source.apart_s)
        return steps, histories

    steps, histories = ask(fake, read)
    times = [at for at, _ in steps]
    assert times == sorted(set(times))
    assert len(steps) < 500
    apart = [step_s for _, step_s in steps]
    assert apart == sorted(apart, reverse=True)
    assert apart.count(600) in (0, 121), "of 20 hours, and one where it becomes finer"
    assert apart.count(60) in (0, 51, 230)
    for name in ("a:8000", "b:8000"):
        window = histories[name].window(since_s, NOW)
        assert window is not None
        assert (window.gap_s, window.num_restarts) == (0, 0)
        assert window.seconds == pytest.approx(since_s, abs=max(700 if since_s > 14400 else 75, 0))
        assert window.counters["num_tokens"] == pytest.approx(10 * window.seconds)
        assert window.gauge("running_requests") == pytest.approx(3)


@pytest.mark.slow
def test_much_is_asked_for_in_parts() -> None:
    class Many(FakePrometheus):
        def series(self) -> Iterator[tuple[dict[str, str], str]]:
            for metric, instance in super().series():
                for engine in range(400):
                    yield {**metric, "engine": str(engine)}, instance

    fake = Many()

    async def read(source: PrometheusSource) -> int:
        await source.latest(NOW)
        return sum([1 async for _ in source.past(3600.0, NOW)])

    assert ask(fake, read) == 50 + 40
    ranges = [form for path, form in fake.asked if path == "/api/v1/query_range"]
    assert len(ranges) == 2
    points = [(float(f["end"]) - float(f["start"])) / float(f["step"]) + 1 for f in ranges]
    assert all(each * 4_000 <= 250_000 for each in points)


@pytest.mark.parametrize(
    ("answer", "status", "reason"),
    [
        (b'{"status": "error", "error": "parse\\nerror"}', 400, "parse error"),
        (b"<html>", 200, "its answer is no JSON; is it a Prometheus server?"),
        (b"[" * 100_000, 200, "its answer is no JSON; is it a Prometheus server?"),
        (b'{"status": "success", "data": []}', 200, "its answer is not that of Prometheus"),
        (b'{"status": "success", "data": {"result": [{"metric": {}, "values": [[1]]}]}}', 200,
         "its answer is not that of Prometheus"),
        (b"[]", 200, "its answer is not that of Prometheus"),
        (b"", 404, "http 404"),
    ],
)  # fmt: skip
def test_errors_are_one_line(answer: bytes, status: int, reason: str) -> None:
    fake = FakePrometheus()
    fake.answer, fake.status = answer, status
    with pytest.raises(BackendError) as refused:
        ask(fake, lambda source: source.latest(NOW))
    assert re.fullmatch(rf"Prometheus at http://127\.0\.0\.1:\d+: {re.escape(reason)}",
                        str(refused.value))  # fmt: skip


def test_keys_are_sent_and_not_shown() -> None:
    fake = FakePrometheus()

    async def run(url: str) -> None:
        async with open_session() as session:
            await PrometheusSource(session, url, api_key="key").latest(NOW)
            await PrometheusSource(session, url.replace("//", "//u:secret@")).latest(NOW)
            fake.status = 500
            with pytest.raises(BackendError, match=r"at http://\*\*\*@127\.0\.0\.1:\d+: http 500$"):
                await PrometheusSource(session, url.replace("//", "//u:secret@")).latest(NOW)

    with serving(fake) as url:
        asyncio.run(run(url))
    assert fake.headers[0]["Authorization"] == "Bearer key"
    assert fake.headers[1]["Authorization"].startswith("Basic ")
