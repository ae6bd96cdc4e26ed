"""Suites that every backend passes: subclass one, get its tests.

    class TestMyEngine(BackendContract):
        def make_backend(self) -> Backend:
            return MyEngine()

        def make_serving(self, folder: Path) -> Serving:
            return Serving(target="smollm2-135m")

`BackendContract` looks at commands and starts nothing. `RunningContract` starts the engine: give it
the speculations to start with.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from outdraft.backends.backend import Backend, Serving, Traffic
from outdraft.backends.process import HOST, EngineProcess, start
from outdraft.backends.speculated import REPEATING, why_not_as_asked
from outdraft.errors import BackendError, OptionError
from outdraft.loadgen.endpoint import Endpoint
from outdraft.loadgen.fleet import run_load
from outdraft.loadgen.request import requests_of
from outdraft.metrics_page import Page, difference, parse
from outdraft.records import Record
from outdraft.speculation import METHODS, OFF, WITH_DRAFT, Speculation
from outdraft.workload.prompt import Message, Planned, Prompt

_PORT = 45678
_NOTICE_S = 5.0  # how soon an engine's death has to be noticed
_PATIENCE_S = 60.0


class BackendContract:
    """What holds for the commands of any backend."""

    def make_backend(self) -> Backend:
        raise NotImplementedError

    def make_serving(self, folder: Path) -> Serving:
        """A target that this engine serves; files that it needs go into `folder`."""
        raise NotImplementedError

    def speculation(self, method: str, serving: Serving) -> Speculation:
        """Of a method; the target is a draft that every engine has."""
        draft = serving.target if method in WITH_DRAFT else None
        return Speculation(method=method, k=3, draft=draft)

    def test_it_says_what_is_installed(self) -> None:
        installed = self.make_backend().detect()
        assert installed.version
        assert all(option.startswith("-") for option in installed.options)

    def test_off_is_always_possible(self) -> None:
        can = self.make_backend().capabilities()
        assert "off" in can.methods
        assert can.methods <= set(METHODS)

    def test_a_launch_serves_here_at_the_port(self, tmp_path: Path) -> None:
        backend, serving = self.make_backend(), self.make_serving(tmp_path)
        argv = backend.launch(serving, OFF, _PORT).argv
        assert _value(argv, "--host") == HOST
        assert _value(argv, "--port") == str(_PORT)

    def test_off_has_no_speculative_flags(self, tmp_path: Path) -> None:
        backend, serving = self.make_backend(), self.make_serving(tmp_path)
        argv = backend.launch(serving, OFF, _PORT).argv
        assert [word for word in argv if word.startswith(("--spec", "--draft", "-md"))] == []

    def test_every_method_it_can_do_has_a_launch(self, tmp_path: Path) -> None:
        backend, serving = self.make_backend(), self.make_serving(tmp_path)
        off = backend.launch(serving, OFF, _PORT).argv
        for method in backend.capabilities().methods - {"off"}:
            launch = backend.launch(serving, self.speculation(method, serving), _PORT)
            assert len(launch.argv) > len(off), f"{method} changes nothing"
            assert all("\n" not in note for note in launch.notes)

    def test_a_method_it_cannot_do_names_those_it_can(self, tmp_path: Path) -> None:
        backend, serving = self.make_backend(), self.make_serving(tmp_path)
        can = backend.capabilities().methods
        for method in set(METHODS) - can:
            with pytest.raises(OptionError) as refused:
                backend.launch(serving, self.speculation(method, serving), _PORT)
            words = str(refused.value)
            assert "\n" not in words
            assert all(each in words for each in can - {"off"})

    def test_a_users_own_flags_come_along(self, tmp_path: Path) -> None:
        serving = self.make_serving(tmp_path)
        own = Serving(**{**_fields(serving), "extra": (*serving.extra, "--some-flag", "7")})
        argv = self.make_backend().launch(own, OFF, _PORT).argv
        assert _value(argv, "--some-flag") == "7"

    def test_a_preflight_is_a_line_for_each_warning(self, tmp_path: Path) -> None:
        backend, serving = self.make_backend(), self.make_serving(tmp_path)
        traffic = Traffic(concurrency=512, temperatures=(0.0, 0.8), longest=1 << 20)
        for warning in backend.preflight(serving, OFF, traffic):
            assert warning
            assert "\n" not in warning

    def test_a_page_of_another_server_has_no_drafts(self) -> None:
        assert self.make_backend().drafted({"other:requests_total": 3.0}) is None


class RunningContract(BackendContract):
    """What holds for the engine itself."""

    limit_s = 120.0  # to be healthy
    methods: Sequence[str] = ("ngram",)  # started one after the other

    def broken_serving(self, folder: Path) -> Serving:
        """A target whose file is no model."""
        raise NotImplementedError

    def pytest_generate_tests(self, metafunc: Any) -> None:
        if "engine" in metafunc.fixturenames:
            metafunc.parametrize("engine", self.methods, indirect=True, scope="class")

    @pytest.fixture(scope="class")
    @classmethod
    def engine(
        cls, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
    ) -> Iterator[EngineProcess]:
        """A healthy engine that speculates; when it is stopped, nothing of it is left."""
        suite, folder = cls(), tmp_path_factory.mktemp("engine")
        serving = suite.make_serving(folder)
        waits: list[float] = []
        engine = start(
            suite.make_backend(),
            serving,
            suite.speculation(request.param, serving),
            log=folder / "engine.log",
            limit_s=suite.limit_s,
            on_wait=lambda seconds, _: waits.append(seconds),
        )
        assert waits == sorted(waits)
        yield engine
        running = engine.processes()
        assert running
        engine.stop()
        assert [pid for pid in running if is_alive(pid)] == []
        assert engine.died() is None, "stopped is not died"

    def test_it_answers(self, engine: EngineProcess) -> None:
        answer = ask(engine, REPEATING, max_tokens=8)
        assert answer["choices"][0]["message"]["content"]
        assert answer["usage"]["completion_tokens"] >= 1

    def test_it_drafts_and_says_so(self, engine: EngineProcess) -> None:
        """Streams, counters before and after, and each answer's own acceptance."""
        backend = self.make_backend()
        before = page_of(engine)
        records = stream(engine, REPEATING, max_tokens=48)
        after = page_of(engine)
        assert [record.error for record in records] == [None, None]
        assert all(len(record.chunk_ns) > 1 for record in records), "no stream"
        grown = backend.drafted(difference(after, before))
        assert grown is not None
        assert grown.num_draft_tokens > 0, engine.log.read_text()[-2000:]
        assert grown.num_accepted_tokens <= grown.num_draft_tokens
        if backend.capabilities().acceptance_per_request:
            told = [record.acceptance for record in records if record.acceptance]
            assert sum(each.num_draft_tokens for each in told) > 0
        assert why_not_as_asked(backend, Speculation(method="ngram"), before, after) is None
        wrong = why_not_as_asked(backend, OFF, before, after)
        assert wrong is not None
        assert "off" in wrong

    def test_off_drafts_nothing_and_a_crash_is_noticed(self, tmp_path: Path) -> None:
        backend, serving = self.make_backend(), self.make_serving(tmp_path)
        log = tmp_path / "engine.log"
        with start(backend, serving, OFF, log=log, limit_s=self.limit_s) as engine:
            before = page_of(engine)
            ask(engine, REPEATING, max_tokens=8)
            after = page_of(engine)
            counts = backend.drafted(difference(after, before))
            assert counts is None or counts.num_draft_tokens == 0
            assert why_not_as_asked(backend, OFF, before, after) is None
            silent = why_not_as_asked(backend, Speculation(method="ngram"), before, after)
            assert silent is not None
            assert engine.died() is None
            self._crash(engine)
        assert engine.processes() == []

    def _crash(self, engine: EngineProcess) -> None:
        """In the middle of a request."""
        noticed = threading.Event()
        reasons: list[str] = []

        def on_death(reason: str) -> None:
            reasons.append(reason)
            noticed.set()

        def open_request() -> None:
            with suppress(OSError, ValueError):
                ask(engine, REPEATING, max_tokens=400)

        request = threading.Thread(target=open_request)
        request.start()
        time.sleep(0.3)
        with engine.watched(on_death):
            os.kill(engine.processes()[0], signal.SIGKILL)
            assert noticed.wait(_NOTICE_S), "nobody noticed"
        request.join(_PATIENCE_S)
        assert "killed" in reasons[0]
        assert str(engine.log) in reasons[0]
        assert engine.died() == reasons[0]

    def test_a_wrong_model_file_is_the_engines_own_line(self, tmp_path: Path) -> None:
        log = tmp_path / "engine.log"
        serving = self.broken_serving(tmp_path)
        with pytest.raises(BackendError) as failed:
            start(self.make_backend(), serving, OFF, log=log, limit_s=self.limit_s)
        words = str(failed.value)
        quoted = words.split('"')[1].rstrip("…")
        assert quoted in log.read_text(encoding="utf-8", errors="replace")
        assert "\n" not in words
        assert str(log) in words


def is_alive(pid: int) -> bool:
    """Runs, or is a zombie that somebody has yet to collect."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def ask(engine: EngineProcess, words: str, *, max_tokens: int) -> dict[str, Any]:
    """A whole answer at temperature 0."""
    body = {
        "messages": [{"role": "user", "content": words}],
        "max_tokens": max_tokens,
        "temperature": 0,
        "model": _model(engine),
    }
    answer = _fetch(engine, "POST", "/v1/chat/completions", json.dumps(body))
    found: dict[str, Any] = json.loads(answer)
    return found


def stream(engine: EngineProcess, words: str, *, max_tokens: int) -> tuple[Record, ...]:
    """Two requests at a time, through the client that measures."""
    prompt = Prompt("repeating", "extraction", (Message("user", words),), max_tokens)
    plan = [Planned(prompt, 0.0, max_tokens, seed=number) for number in range(2)]
    endpoint = Endpoint(engine.url, model=_model(engine))
    return run_load(endpoint, requests_of(plan), concurrency=2).records


def page_of(engine: EngineProcess) -> Page:
    return parse(_fetch(engine, "GET", "/metrics"))


def _model(engine: EngineProcess) -> str:
    return str(json.loads(_fetch(engine, "GET", "/v1/models"))["data"][0]["id"])


def _fetch(engine: EngineProcess, method: str, path: str, body: str | None = None) -> str:
    connection = HTTPConnection(HOST, engine.port, timeout=_PATIENCE_S)
    try:
        connection.request(method, path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read().decode()
    finally:
        connection.close()
    if answer.status != 200:
        raise ValueError(f"{method} {path}: {answer.status} {text[:300]}")
    return text


def _value(argv: Sequence[str], flag: str) -> str:
    return argv[argv.index(flag) + 1]


def _fields(serving: Serving) -> dict[str, Any]:
    return {name: getattr(serving, name) for name in Serving.__dataclass_fields__}
