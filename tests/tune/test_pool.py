"""Engines that fall asleep and wake up, over HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import cast

import pytest

from outdraft.backends.backend import Sleep
from outdraft.backends.installation import Installation
from outdraft.backends.process import EngineProcess
from outdraft.backends.sglang.backend import Sglang
from outdraft.errors import BackendError, CrowdedGpuError, OptionError
from outdraft.speculation import Speculation
from outdraft.tune.engines import RunningEngine
from outdraft.tune.keeping import Keeping
from outdraft.tune.options import ASLEEP, SIDE_BY_SIDE
from outdraft.tune.placing import check_memory_kept
from outdraft.tune.pool import EnginePool

SGLANG = Sglang(Installation("0.5.18", frozenset({"--enable-memory-saver"}), device="cuda"))


class Busy:
    """As SGLang: some requests are still running, /flush_cache is refused meanwhile, and it ends
    where memory is to be released then. Its gauge says that a request runs, long after."""

    def __init__(self) -> None:
        self.num_refusals = 3
        self.asked: list[tuple[str, int]] = []

    def answer(self, path: str) -> tuple[int, str]:
        if path == "/metrics":
            return 200, "sglang:num_running_reqs 1\n"
        if path == "/v1/models":
            return 200, json.dumps({"data": [{"id": "m", "owned_by": "sglang"}]})
        if path in ("/version", "/props", "/server_info"):
            return 404, ""
        code = 200
        if self.num_refusals and path != "/resume_memory_occupation":
            self.num_refusals -= 1
            code = 400 if path == "/flush_cache" else 500
        self.asked.append((path, code))
        return code, ""


@pytest.fixture
def served() -> Iterator[tuple[Busy, RunningEngine]]:
    busy = Busy()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            code, text = busy.answer(self.path)
            self.send_response(code)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        do_POST = do_GET

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        process = SimpleNamespace(
            url=f"http://127.0.0.1:{server.server_port}", died=lambda: None, stop=lambda: None,
            processes=list,
        )  # fmt: skip
        yield busy, RunningEngine(cast(EngineProcess, process))
        server.shutdown()


def pool_of_sglang() -> EnginePool:
    supported = SGLANG.capabilities()
    return EnginePool(Keeping(ASLEEP), supported.sleep, lambda: None, idle_path=supported.idle_path)


def test_memory_is_released_when_nothing_runs_any_more(served: tuple[Busy, RunningEngine]) -> None:
    busy, engine = served
    pool = pool_of_sglang()
    pool.get("off", lambda: engine, lambda woken: None)
    pool.get("other", lambda: engine, lambda woken: None)
    flush = "/flush_cache"
    released = [("/release_memory_occupation", 200)]
    assert busy.asked == [(flush, 400)] * 3 + [(flush, 200)] + released


def test_an_engine_that_stays_busy_is_lost_and_nothing_is_released(
    served: tuple[Busy, RunningEngine],
) -> None:
    busy, engine = served
    busy.num_refusals = 1000
    pool = pool_of_sglang()
    pool.get("off", lambda: engine, lambda woken: None)
    pool.get("other", lambda: engine, lambda woken: None)
    assert {path for path, _ in busy.asked} == {"/flush_cache"}
    with pytest.raises(BackendError, match="it did not fall asleep"):
        pool.get("off", lambda: engine, lambda woken: None)


def test_the_end_of_abandoned_requests_is_asked_for_where_gauges_are_late(
    served: tuple[Busy, RunningEngine],
) -> None:
    busy, engine = served
    engine.wait_until_idle(SGLANG.capabilities().idle_path)
    assert [code for _, code in busy.asked] == [400, 400, 400, 200]
    busy.num_refusals = 1000
    engine.wait_until_idle(SGLANG.capabilities().idle_path)  # and goes on


def test_a_crowded_gpu_empties_no_other_card() -> None:
    class Up:
        def resident_bytes(self) -> int:
            return 1

        def died(self) -> None:
            return None

        def post(self, *args: object) -> None:
            pass

        def stop(self) -> None:
            pass

    starts: list[str] = []
    crowded = ["b1"]

    def get(key: str) -> None:
        def start() -> RunningEngine:
            if key in crowded:
                crowded.remove(key)
                raise CrowdedGpuError("free memory on the device is less than desired")
            starts.append(key)
            return cast(RunningEngine, Up())

        pool.get(key, start, lambda woken: None)

    pool = EnginePool(
        Keeping(ASLEEP, 6), Sleep("/sleep", "/wake"), lambda: None, ("a off", "b off"),
        lambda key: int(key.startswith("b")),
    )  # fmt: skip
    first = ("a off", "a1", "a2", "a3", "a4")
    for key in (*first, "b off", "b1", "a5"):
        get(key)
    assert all(key in pool for key in (*first, "a5", "b1"))
    assert "b off" not in pool, "its card holds one"
    get("b off")
    assert "b1" not in pool
    assert all(key in pool for key in (*first, "a5", "b off"))


def test_memory_is_not_kept_by_what_is_asked_before_every_sleep() -> None:
    supported = SGLANG.capabilities()
    ngram, eagle = Speculation("ngram"), Speculation("eagle", draft="head")
    with pytest.raises(OptionError, match="--keep-memory: ngram forgets whenever") as refused:
        check_memory_kept(Keeping(ASLEEP), supported, (eagle, ngram))
    assert "--keep-engines side-by-side" in str(refused.value)
    check_memory_kept(Keeping(SIDE_BY_SIDE), supported, (eagle, ngram))
    check_memory_kept(Keeping(ASLEEP), supported, (eagle,))  # it remembers nothing
