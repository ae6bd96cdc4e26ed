"""Suites that every backend passes: subclass one, get its tests.

    class TestMyEngine(BackendContract):
        def make_backend(self) -> Backend:
            return MyEngine()

        def make_serving(self, folder: Path) -> Serving:
            return Serving(target="smollm2-135m")

`BackendContract` looks at commands and starts nothing. `RunningContract` starts the engine, once
for each of its `methods`.
"""

import json
import os
import signal
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from outdraft.acceptance import Acceptance
from outdraft.backends.backend import Backend, Serving, Traffic
from outdraft.backends.checks import preflight
from outdraft.backends.flags import HOST
from outdraft.backends.process import EngineProcess, start
from outdraft.backends.proof import REPEATING, speculation_mismatch
from outdraft.errors import BackendError, OptionError
from outdraft.loadgen.endpoint import Endpoint, make_requests
from outdraft.loadgen.fleet import run_load
from outdraft.observe import Page, RemoteServer, page_difference, read_acceptance
from outdraft.records import Record
from outdraft.speculation import METHODS, OFF, WITH_DRAFT, Speculation
from outdraft.workload.prompt import Message, Planned, Prompt

_PORT = 45678
_NOTICE_S = 5.0  # how soon an engine's death has to be noticed
_PATIENCE_S = 60.0
_HEAD = '{"model_type": "llama", "architectures": ["LlamaForCausalLMEagle3"]}'


class BackendContract:
    """What holds for the commands of any backend."""

    def make_backend(self) -> Backend:
        raise NotImplementedError

    def make_serving(self, folder: Path) -> Serving:
        """A target that this engine serves; files that it needs go into `folder`."""
        raise NotImplementedError

    def speculation(self, method: str, serving: Serving) -> Speculation:
        """A speculation of that method; where it needs a model as draft, the target is one, where
        it needs a head, a folder beside the target is."""
        draft = serving.target if method in WITH_DRAFT else None
        target = Path(serving.target)
        if method == "eagle" and target.exists():
            head = target.with_name(f"{target.name}-head")
            head.mkdir(exist_ok=True)
            (head / "config.json").write_text(_HEAD)
            draft = str(head)
        return Speculation(method=method, k=3, draft=draft)

    def test_it_says_what_is_installed(self) -> None:
        installed = self.make_backend().installation
        assert installed.version
        assert all(option.startswith("-") for option in installed.options)

    def test_off_is_always_possible(self) -> None:
        methods = self.make_backend().capabilities().methods
        assert "off" in methods
        assert methods <= set(METHODS)

    def test_a_launch_serves_here_at_the_port(self, tmp_path: Path) -> None:
        argv = self.make_backend().launch(self.make_serving(tmp_path), OFF, _PORT).argv
        assert _value(argv, "--host") == HOST
        assert _value(argv, "--port") == str(_PORT)

    def test_off_has_no_speculative_flags(self, tmp_path: Path) -> None:
        argv = self.make_backend().launch(self.make_serving(tmp_path), OFF, _PORT).argv
        assert [word for word in argv if word.startswith(("--spec", "--draft", "-md"))] == []

    def test_every_method_it_can_do_has_a_launch(self, tmp_path: Path) -> None:
        backend, serving = self.make_backend(), self.make_serving(tmp_path)
        off = backend.launch(serving, OFF, _PORT).argv
        for method in backend.capabilities().methods - {"off"}:
            launch = backend.launch(serving, self.speculation(method, serving), _PORT)
            assert launch.argv != off, f"{method} changes nothing"
            assert all("\n" not in note for note in launch.notes)

    def test_methods_that_remember_are_its_own_and_can_be_made_to_forget(self) -> None:
        supported = self.make_backend().capabilities()
        assert supported.forget_paths.keys() <= supported.methods
        assert all(not path or path.startswith("/") for path in supported.forget_paths.values())

    def test_a_method_it_cannot_do_names_those_it_can(self, tmp_path: Path) -> None:
        backend, serving = self.make_backend(), self.make_serving(tmp_path)
        supported = backend.capabilities().methods
        for method in set(METHODS) - supported:
            with pytest.raises(OptionError) as refused:
                backend.launch(serving, self.speculation(method, serving), _PORT)
            words = str(refused.value)
            assert "\n" not in words
            assert all(each in words for each in supported - {"off"})

    def test_a_users_own_flags_come_along(self, tmp_path: Path) -> None:
        serving = self.make_serving(tmp_path)
        own = replace(serving, extra=(*serving.extra, "--some-flag", "7"))
        argv = self.make_backend().launch(own, OFF, _PORT).argv
        assert _value(argv, "--some-flag") == "7"

    def test_a_preflight_is_a_line_for_each_warning(self, tmp_path: Path) -> None:
        backend, serving = self.make_backend(), self.make_serving(tmp_path)
        traffic = Traffic(concurrency=512, temperatures=(0.0, 0.8), longest=1 << 20)
        warnings = preflight(backend, serving, OFF, traffic)
        assert all(warning and "\n" not in warning for warning in warnings)


class RunningContract(BackendContract):
    """What holds for the engine itself."""

    limit_s = 120.0  # to be healthy
    methods: Sequence[str] = ("ngram",)  # started one after the other

    def broken_serving(self, folder: Path) -> Serving:
        """A target whose file is not a model."""
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
            replace(serving, forgets=True),
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
        assert engine.died() is None, "a stopped engine has not died"

    def test_it_answers(self, engine: EngineProcess) -> None:
        answer = chat(engine, REPEATING, max_tokens=8)
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
        grown = read_acceptance(page_difference(after, before))
        assert grown is not None
        assert grown.num_draft_tokens > 0, engine.log.read_text()[-2000:]
        assert grown.num_accepted_tokens <= grown.num_draft_tokens
        if backend.capabilities().acceptance_per_request:
            reported = Acceptance.total(record.acceptance for record in records)
            assert reported.num_draft_tokens > 0
        assert speculation_mismatch(backend, Speculation(method="ngram"), before, after) is None
        assert "off" in (speculation_mismatch(backend, OFF, before, after) or "")

    def test_it_forgets_when_asked(self, engine: EngineProcess) -> None:
        for path in filter(None, self.make_backend().capabilities().forget_paths.values()):
            RemoteServer(engine.url).forget(path)
        assert chat(engine, REPEATING, max_tokens=8)["choices"]

    def test_off_drafts_nothing_and_a_crash_is_noticed(self, tmp_path: Path) -> None:
        backend, serving = self.make_backend(), self.make_serving(tmp_path)
        log = tmp_path / "engine.log"
        with start(backend, serving, OFF, log=log, limit_s=self.limit_s) as engine:
            before = page_of(engine)
            chat(engine, REPEATING, max_tokens=8)
            after = page_of(engine)
            counts = read_acceptance(page_difference(after, before))
            assert counts is None or counts.num_draft_tokens == 0
            assert speculation_mismatch(backend, OFF, before, after) is None
            ngram = Speculation(method="ngram")
            assert speculation_mismatch(backend, ngram, before, after) is not None
            assert engine.died() is None
            with ThreadPoolExecutor(1) as client:  # it crashes in the middle of a request
                request = client.submit(chat, engine, REPEATING, max_tokens=400)
                time.sleep(0.3)
                os.kill(engine.processes()[0], signal.SIGKILL)
                reason = wait_for_death(engine)
                with suppress(OSError, ValueError):
                    request.result(_PATIENCE_S)
            assert "killed" in reason
            assert str(engine.log) in reason
            assert engine.died() == reason
        assert engine.processes() == []

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


def wait_for_death(engine: EngineProcess) -> str:
    """Why the engine has ended, as soon as that is noticed."""
    until = time.monotonic() + _NOTICE_S
    while (reason := engine.died()) is None:
        assert time.monotonic() < until, "nobody noticed"
        time.sleep(0.05)
    return reason


def is_alive(pid: int) -> bool:
    """Whether a process runs or is a zombie."""
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def chat(engine: EngineProcess, words: str, *, max_tokens: int) -> dict[str, Any]:
    """A whole answer at temperature 0."""
    body = {
        "messages": [{"role": "user", "content": words}],
        "max_tokens": max_tokens,
        "temperature": 0,
        "model": RemoteServer(engine.url).identify().model,
    }
    headers = {"Content-Type": "application/json"}
    request = Request(f"{engine.url}/v1/chat/completions", json.dumps(body).encode(), headers)
    with urlopen(request, timeout=_PATIENCE_S) as answer:
        content: dict[str, Any] = json.loads(answer.read())
        return content


def stream(engine: EngineProcess, words: str, *, max_tokens: int) -> tuple[Record, ...]:
    """Two requests at once, through the client that measures."""
    prompt = Prompt("repeating", "extraction", (Message("user", words),), max_tokens)
    plan = [Planned(prompt, 0.0, max_tokens, seed=number) for number in range(2)]
    endpoint = Endpoint(engine.url, model=RemoteServer(engine.url).identify().model)
    return run_load(endpoint, make_requests(plan), concurrency=2).records


def page_of(engine: EngineProcess) -> Page:
    return RemoteServer(engine.url).metrics()


def _value(argv: Sequence[str], flag: str) -> str:
    return argv[argv.index(flag) + 1]
