"""`outdraft serve` as its operator meets it: the real command, signals, and a bad end."""

from __future__ import annotations

import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from outdraft.cli.main import main
from outdraft.testing.tiny_models import tiny_model
from tests.measure.patient import be_patient

COMMAND = (sys.executable, "-m", "outdraft")
PATIENCE_S = 120  # a busy machine takes its time; nothing here is about speed
ENDLESS = {"prompt": "one two three", "max_tokens": 60000, "ignore_eos": True, "temperature": 0}
# Long enough to be open when a signal comes, short enough to wait for.
LONG = ENDLESS | {"max_tokens": 600}

# Room for such a text; to clear the usual GB takes half a second.
ROOM = ("--kv-cache-memory-bytes", "160000000")

# The engine breaks as soon as three texts are in it.
CRASHING = """
import sys
from outdraft.cli.main import main
from outdraft.engine.engine import Engine

whole_step = Engine.step

def step(engine, **options):
    if engine.scheduler.num_running + engine.scheduler.num_waiting == 3:
        raise RuntimeError("a bit has flipped")
    return whole_step(engine, **options)

Engine.step = step
sys.exit(main(sys.argv[1:]))
"""


class Running:
    """A server process, and what it says on stderr."""

    def __init__(self, *flags: str, command: tuple[str, ...], env: dict[str, str]) -> None:
        kept = {key: value for key, value in os.environ.items() if key != "OUTDRAFT_API_KEY"}
        self.process = subprocess.Popen(
            [*command, "serve", "--port", "0", "--threads", "1", *ROOM, *flags],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=kept | env,
        )  # fmt: skip
        self.said: list[str] = []
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self.url = self.line_with(" at http://").rpartition(" at ")[2]

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line.rstrip("\n"))
            self._lines.put(line.rstrip("\n"))
        self._lines.put("")  # the end

    def line_with(self, part: str) -> str:
        """The next line that holds `part`; a failure if the process ends without one."""
        while line := self._lines.get(timeout=PATIENCE_S):
            if part in line:
                return line
        raise AssertionError(f"it ended without saying {part!r}: {self.said}")

    def end(self) -> int:
        """Its exit code, when it has ended by itself."""
        code = self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        assert self.process.stdout is not None
        assert self.process.stdout.read() == ""
        return code

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()


@contextmanager
def running(
    *flags: str, command: tuple[str, ...] = COMMAND, env: dict[str, str] | None = None
) -> Iterator[Running]:
    server = Running(*flags, command=command, env=env or {})
    try:
        yield server
    finally:
        server.kill()


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> str:
    """With so long a context that a text can be kept going until a signal ends it."""
    folder = tmp_path_factory.mktemp("models") / "target"
    return str(tiny_model(folder, "llama", context=65536))


@pytest.fixture(scope="module")
def server(target: str) -> Iterator[Running]:
    flags = ["--target", target, "--method", "ngram", "--api-key", "sesame", "--access-log"]
    with running(*flags, "--served-model-name", "a", "--served-model-name", "b") as started:
        yield started


def client(server: Running, key: str | None = "sesame") -> httpx.Client:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    return httpx.Client(base_url=server.url, headers=headers, timeout=PATIENCE_S, trust_env=False)


def test_it_answers_under_the_names_it_was_given(server: Running) -> None:
    with client(server) as http:
        assert [each["id"] for each in http.get("/v1/models").json()["data"]] == ["a", "b"]
        asked = {"prompt": "one two", "max_tokens": 4, "ignore_eos": True}
        for name in ("a", "b"):
            answer = http.post("/v1/completions", json={**asked, "model": name}).json()
            assert answer["model"] == name
            assert answer["usage"]["completion_tokens"] == 4
        assert http.post("/v1/completions", json={**asked, "model": "c"}).status_code == 404


def test_it_says_what_it_serves(server: Running) -> None:
    [line] = [line for line in server.said if " at http://" in line]
    assert line.startswith("outdraft: a (ngram, k = 5, coupled) at http://127.0.0.1:")


def test_it_asks_for_the_key(server: Running) -> None:
    for wrong in (None, "sesam", "sesame2", "Sesame"):
        with client(server, wrong) as http:
            assert http.get("/v1/models").status_code == 401
            assert http.get("/health").status_code == 200, "a probe has no key"


def test_our_own_client_has_nothing_to_say_about_it(
    server: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    be_patient(monkeypatch)
    load = ("--requests", "4", "--concurrency", "1", "--max-tokens", "4", "--warmup", "0")
    words = ["bench", server.url, *load, "--api-key", "sesame", "--category", "chat", "--json"]
    assert main(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert not [each for each in found["problems"] if "refused" in each]


def test_it_is_not_to_be_reached_from_outside(server: Running) -> None:
    """All of 127.* is this machine: a server at every address would answer at the second one."""
    port = int(server.url.rpartition(":")[2])
    with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.2", port), 10):
        pass
    with pytest.raises(OSError), socket.create_connection(("::1", port), 10):  # noqa: PT011
        pass


def test_a_line_for_each_request(server: Running) -> None:
    with client(server) as http:
        http.get("/version")
    server.line_with('"GET /version HTTP/1.1" 200')


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_open_requests_finish(target: str, sent: signal.Signals) -> None:
    # The key comes from the environment here: one server less to start.
    with (
        running("--target", target, env={"OUTDRAFT_API_KEY": "sesame"}) as server,
        client(server) as http,
    ):
        assert http.get("/v1/models", headers={"Authorization": ""}).status_code == 401
        assert http.get("/v1/models").json()["data"][0]["id"] == target
        with http.stream("POST", "/v1/completions", json={**LONG, "stream": True}) as answer:
            lines = answer.iter_lines()
            assert next(lines).startswith("data: ")
            server.process.send_signal(sent)
            assert "1 texts to finish" in server.line_with("shutting down")
            rest = [line for line in lines if line]
        assert rest[-1] == "data: [DONE]"
        assert json.loads(rest[-2][6:])["choices"][0]["finish_reason"] == "length"
        assert server.end() == 0
        assert server.said[-1] == "outdraft: stopped"
        assert len(server.said) == 3, server.said


def test_two_signals_end_it_at_once(target: str) -> None:
    with (
        running("--target", target, "--drain-timeout", "100000") as server,
        client(server, None) as http,
    ):
        with http.stream("POST", "/v1/completions", json={**ENDLESS, "stream": True}) as answer:
            lines = answer.iter_lines()
            assert next(lines).startswith("data: ")
            server.process.send_signal(signal.SIGINT)
            server.line_with("shutting down")
            with client(server, None) as other:
                assert other.get("/health").status_code == 503
                refused = other.post("/v1/completions", json=LONG)
            assert refused.status_code == 503
            assert refused.headers["Retry-After"]
            server.process.send_signal(signal.SIGINT)
            assert server.end() == 0
        assert "Traceback" not in "\n".join(server.said)
        assert server.said[-1] == "outdraft: stopped"


def test_a_crash_tells_everybody_and_ends_the_process(target: str) -> None:
    crashing = (sys.executable, "-c", CRASHING)
    with (
        running("--target", target, command=crashing) as server,
        client(server, None) as http,
        ThreadPoolExecutor(2) as pool,
        http.stream("POST", "/v1/completions", json={**ENDLESS, "stream": True}) as stream,
    ):
        lines = stream.iter_lines()
        assert next(lines).startswith("data: ")
        whole = [pool.submit(http.post, "/v1/completions", json=ENDLESS) for _ in range(2)]
        for each in whole:
            answer = each.result(PATIENCE_S)
            assert answer.status_code == 500
            assert "a bit has flipped" in answer.json()["error"]["message"]
        rest = [line for line in lines if line]
        assert rest[-1] == "data: [DONE]"
        assert "a bit has flipped" in json.loads(rest[-2][6:])["error"]["message"]
        assert server.end() == 1
        assert server.said[-1] == "outdraft: the engine stopped: RuntimeError: a bit has flipped"
        assert "Traceback (most recent call last):" in server.said, "for whoever has to mend it"


def refused(capsys: pytest.CaptureFixture[str], *flags: str) -> str:
    """The one line of a command that is refused."""
    assert main(["serve", *flags]) == 2
    caught = capsys.readouterr()
    assert caught.out == ""
    assert caught.err.startswith("outdraft: ")
    assert caught.err.count("\n") == 1, caught.err
    return caught.err


class TestBadInput:
    def test_a_port_that_is_taken(self, capsys: pytest.CaptureFixture[str]) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = str(taken.getsockname()[1])
            # There is no such model: whoever looks for it first complains about something else.
            line = refused(capsys, "--port", port, "--target", "./no-such-model")
        assert f"127.0.0.1:{port}" in line
        assert "--port" in line

    @pytest.mark.parametrize(
        ("flags", "said"),
        [
            (("--port", "65536"), "--port must be between 0 and 65535, got 65536"),
            (("--port", "-1"), "got -1"),
            (("--port", "http"), "'http'"),
            (("--host", ""), "--host is empty"),
            (("--host", "no.such.host.invalid", "--port", "0"), "no.such.host.invalid"),
            (("--max-num-waiting", "-1"), "--max-num-waiting must be at least 0, got -1"),
            (("--drain-timeout", "-1"), "--drain-timeout must be between 0 and 100000, got -1"),
            (("--drain-timeout", "nan"), "--drain-timeout"),
            (("--method", "medusa"), "off, ngram, suffix, draft_model"),
            (("--speculative-config", '{"metod": "ngram"}'), "'metod'"),
            (("--speculative-config", "ngram"), "is not JSON"),
            (("--api-key", ""), "--api-key is empty"),
            (("--tensor-parallel-size", "2"), "--tensor-parallel-size"),
            (("--port", "0", "--target", "./no-such-model"), "./no-such-model"),
        ],
    )
    def test_values_that_cannot_be(
        self, flags: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert said in refused(capsys, *flags)

    def test_an_empty_key_in_the_environment(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A secret that was not mounted must not open the server to everybody."""
        monkeypatch.setenv("OUTDRAFT_API_KEY", "")
        assert "--api-key is empty" in refused(capsys, "--port", "0")

    def test_batch_sizes(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        target = str(tiny_model(tmp_path / "tiny", "llama"))
        for flag in ("--max-num-seqs", "--max-num-batched-tokens", "--threads"):
            line = refused(capsys, "--target", target, "--port", "0", flag, "0")
            assert f"{flag} must be at least 1, got 0" in line


HELP = """
import sys
from outdraft.cli.main import main
try:
    main(["serve", "--help"])
finally:
    print("HEAVY", sorted({"torch", "transformers", "fastapi", "uvicorn"} & set(sys.modules)))
"""


def test_help_is_light_and_shows_nothing_old() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HELP], capture_output=True, text=True, timeout=60, check=True
    )
    assert "HEAVY []" in done.stdout
    for flag in ("--port", "--api-key", "--speculative-config", "--method", "--max-num-seqs"):
        assert flag in done.stdout
    for old in ("--speculative-model", "--num-speculative-tokens", "--ngram-prompt", "posterior"):
        assert old not in done.stdout


def test_a_server_nobody_listens_to_ends_all_the_same(target: Path) -> None:
    """Its stderr is a pipe whose reader has left: what it says there must not keep it alive."""
    command = [*COMMAND, "serve", "--port", "0", "--threads", "1", *ROOM, "--target", str(target)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        next(line for line in process.stderr if " at http://" in line)
        process.stderr.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
