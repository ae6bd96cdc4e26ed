"""Does a server keep anything for clients that left? A thousand at once leave at random moments.

    python benchmarks/disconnects.py [--clients 1000] [--waves 3] [--target smollm2-135m] [--json]

The server is the real command in a process of its own. Each wave opens all clients at once: some
leave before their body is complete, some right after it, some while they wait for an answer in one
piece, some after a few chunks of a stream, and some stay to the end. After each wave:

kv, running, waiting   from /metrics, when the last client has left
wrong                  texts of clients that stayed which differ from the same prompt's alone
files                  open descriptors of the server, connections included
MiB                    resident memory of the server

The first wave is a warm-up: torch keeps compiled kernels for each size of a step, about 100 MiB,
whether clients leave or stay. In the end all clients leave at the same moment, and the steps that
the engine still makes are counted.

The exit code is 1 if something was kept, a text was wrong or the server did not end cleanly.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PATIENCE_S = 600.0
LEAVER_TOKENS = 200  # of a text that would go on if nobody ended it
STAYER_TOKENS = 16
MOMENTS_S = 1.0  # over which leavers leave
PROMPTS = (
    "The sea is salty because",
    "one two three one two three one two",
    "def mean(values):\n    total = 0\n",
    "Dear neighbours, on Saturday the water will be turned off. " * 4,
)
LEAVERS = ("within the body", "after the body", "while it waits", "after some chunks")
KINDS = (*LEAVERS, *LEAVERS, "stays, a stream", "stays, one piece")  # a fifth stays
STEPS = "vllm:iteration_tokens_total_count"
HELD = ("vllm:kv_cache_usage_perc", "vllm:num_requests_running", "vllm:num_requests_waiting")


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int
    pid: int  # of the process that serves there

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def rss_mib(self) -> float:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return round(int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024, 1)

    @property
    def num_files(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))


class Server:
    """`outdraft serve` in a process of its own."""

    def __init__(self, *options: str) -> None:
        self._log = tempfile.NamedTemporaryFile("w+", prefix="outdraft-", suffix=".log")  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, "-m", "outdraft", "serve", "--port", "0", *options], stderr=self._log
        )
        self.address = self._address()

    def _address(self) -> Address:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline and self._process.poll() is None:
            matched = re.search(r"at http://([\d.]+):(\d+)", self.log)
            if matched:
                return Address(matched[1], int(matched[2]), self._process.pid)
            time.sleep(0.1)
        self._process.kill()
        raise SystemExit(f"the server did not come up:\n{self.log}")

    @property
    def log(self) -> str:
        return Path(self._log.name).read_text()

    def end(self) -> int:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        return self._process.wait(PATIENCE_S)


def server_options(target: str, clients: int, threads: int) -> list[str]:
    return [
        *("--target", target, "--method", "ngram", "--k", "4", "--threads", str(threads)),
        *("--max-num-waiting", str(2 * clients), "--served-model-name", "model"),
    ]


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    prompt: str
    max_tokens: int
    stream: bool

    @property
    def wire(self) -> bytes:
        body = json.dumps(
            {
                "prompt": self.prompt,
                "max_tokens": self.max_tokens,
                "stream": self.stream,
                "temperature": 0,
                "ignore_eos": True,
            }
        ).encode()
        return (
            b"POST /v1/completions HTTP/1.1\r\nHost: benchmark\r\nConnection: close\r\n"
            b"Content-Type: application/json\r\n"
            + f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )


def text_of(raw: bytes) -> str:
    """The text of a whole HTTP answer, streamed or not; a description of any other answer."""
    head, _, rest = raw.partition(b"\r\n\r\n")
    body = b""
    if b"transfer-encoding: chunked" in head.lower():
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            body += rest[: int(size, 16)]
            rest = rest[int(size, 16) + 2 :]
    else:
        body = rest
    if b" 200 " not in head[:16]:
        return f"status {head[9:12].decode()}: {body.decode()}"
    if b"text/event-stream" not in head:
        return str(json.loads(body)["choices"][0]["text"])
    *events, last = [event for event in body.decode().split("\n\n") if event]
    if last != "data: [DONE]":
        return f"a stream that did not end: {last}"
    chunks = [json.loads(event.removeprefix("data: ")) for event in events]
    return "".join(chunk["choices"][0]["text"] for chunk in chunks)


async def ask(at: Address, request: CompletionRequest) -> str:
    """A client that stays: its text."""
    reader, writer = await asyncio.open_connection(at.host, at.port)
    writer.write(request.wire)
    raw = await reader.read(-1)
    writer.close()
    return text_of(raw)


async def leave(at: Address, kind: str, pick: random.Random, moments_s: float) -> None:
    """A client that leaves: closes its connection, or breaks it off as a crash does."""
    abruptly = pick.random() < 0.5
    stream = kind == "after some chunks" or (kind == "after the body" and pick.random() < 0.5)
    wire = CompletionRequest(pick.choice(PROMPTS), LEAVER_TOKENS, stream).wire
    cut = pick.randrange(1, len(wire)) if kind == "within the body" else len(wire)
    reader, writer = await asyncio.open_connection(at.host, at.port)
    writer.write(wire[:cut])
    await writer.drain()
    if kind == "after some chunks":
        for _ in range(pick.randrange(1, 6)):
            await reader.read(4096)
    elif kind != "after the body":
        await asyncio.sleep(pick.uniform(0, moments_s))
    if abruptly:
        writer.transport.abort()
    else:
        writer.close()


async def wave(
    at: Address, clients: int, texts: dict[str, str], pick: random.Random, moments_s: float
) -> dict[str, Any]:
    """All clients at once; what the server still keeps when the last one has left."""
    kinds = [pick.choice(KINDS) for _ in range(clients)]
    leaving = [
        leave(at, kind, random.Random(pick.random()), moments_s)
        for kind in kinds
        if kind in LEAVERS
    ]
    staying = [
        CompletionRequest(pick.choice(PROMPTS), STAYER_TOKENS, "stream" in kind)
        for kind in kinds
        if kind not in LEAVERS
    ]
    started = time.monotonic()
    gone = asyncio.gather(*leaving)
    answers = await asyncio.gather(*(ask(at, each) for each in staying))
    await gone
    seconds = time.monotonic() - started
    held = await until_idle(at)
    expected = [texts[each.prompt] for each in staying]
    wrong = [answer for answer, text in zip(answers, expected, strict=True) if answer != text]
    return {
        "kinds": dict(Counter(kinds)),
        "seconds": round(seconds, 1),
        "held": {name: held[name] for name in HELD},
        "num_wrong": len(wrong),
        "first_wrong": wrong[0][:200] if wrong else None,
        "num_aborted": int(held["aborted"]),
        "num_files": at.num_files,
        "rss_mib": at.rss_mib,
    }


async def leave_together(at: Address, clients: int) -> dict[str, Any]:
    """All clients leave at the same moment; counts the steps that were made for nobody."""
    writers = []
    for number in range(clients):
        _, writer = await asyncio.open_connection(at.host, at.port)
        writer.write(
            CompletionRequest(PROMPTS[number % len(PROMPTS)], LEAVER_TOKENS, stream=True).wire
        )
        writers.append(writer)
    before = await metrics(at)
    while not before["vllm:num_requests_running"]:
        before = await metrics(at)
    for writer in writers:
        writer.transport.abort()
    after = await until_idle(at)
    return {
        "held_before": {name: before[name] for name in HELD},
        "held": {name: after[name] for name in HELD},
        "steps": int(after[STEPS] - before[STEPS]),
    }


async def until_idle(at: Address) -> dict[str, float]:
    """The metrics when nothing is kept any more, or those after a minute."""
    deadline = time.monotonic() + 60
    while True:
        values = await metrics(at)
        if not any(values[name] for name in HELD) or time.monotonic() > deadline:
            return values
        await asyncio.sleep(0.02)


async def metrics(at: Address) -> dict[str, float]:
    reader, writer = await asyncio.open_connection(at.host, at.port)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: benchmark\r\nConnection: close\r\n\r\n")
    page = (await reader.read(-1)).decode()
    writer.close()
    values = {
        name: float(value) for name, value in re.findall(r"^([\w:]+)\{.*\} (\S+)$", page, re.M)
    }
    values["aborted"] = float(re.findall(r'finished_reason="abort".* (\S+)$', page, re.M)[0])
    return values


async def measure(
    at: Address, clients: int, waves: int, *, moments_s: float = 4.0, seed: int = 0
) -> dict[str, Any]:
    pick = random.Random(seed)
    requests = {
        prompt: CompletionRequest(prompt, STAYER_TOKENS, stream=False) for prompt in PROMPTS
    }
    texts = {prompt: await ask(at, each) for prompt, each in requests.items()}
    report: dict[str, Any] = {
        "clients": clients,
        "num_files": at.num_files,
        "rss_mib": at.rss_mib,
        "waves": [await wave(at, clients, texts, pick, moments_s) for _ in range(waves)],
        "exodus": await leave_together(at, clients),
    }
    again = {prompt: await ask(at, each) for prompt, each in requests.items()}
    report["same_text_afterwards"] = again == texts
    return report


def is_good(report: dict[str, Any]) -> bool:
    held = [each["held"] for each in (*report["waves"], report["exodus"])]
    return (
        report["exit_code"] == 0
        and report["same_text_afterwards"]
        and not any(any(each.values()) for each in held)
        and not any(each["num_wrong"] for each in report["waves"])
    )


def show(report: dict[str, Any]) -> None:
    print(" · ".join(f"{key} {value}" for key, value in report["machine"].items()))
    clients = report["clients"]
    print(f"{clients} clients at once, {report['num_files']} files, {report['rss_mib']} MiB")
    names = ("wave", "seconds", "kv", "running", "waiting", "wrong", "files", "MiB")
    print("  ".join(f"{name:>8}" for name in names))
    for number, each in enumerate(report["waves"], 1):
        counts = (each["num_wrong"], each["num_files"], each["rss_mib"])
        values = (number, each["seconds"], *each["held"].values(), *counts)
        print("  ".join(f"{value:8g}" for value in values))
    kinds = sum((Counter(each["kinds"]) for each in report["waves"]), Counter[str]())
    print(" · ".join(f"{kind}: {count}" for kind, count in sorted(kinds.items())))
    print(f"aborted {report['waves'][-1]['num_aborted']} texts")
    print(f"all {clients} left at the same moment: idle after {report['exodus']['steps']} steps")
    print(f"the same text afterwards: {report['same_text_afterwards']}")
    print(f"the server ended with code {report['exit_code']}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--waves", type=int, default=3)
    parser.add_argument("--target", default="smollm2-135m")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()

    from arms import machine  # not on the path where tests import this file

    # A client is one descriptor here and one in the server, which inherits the limit.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

    server = Server(*server_options(args.target, args.clients, args.threads))
    try:
        report = asyncio.run(measure(server.address, args.clients, args.waves, seed=args.seed))
    finally:
        code = server.end()
    report |= {
        "exit_code": code,
        "log": server.log.splitlines()[1:],
        "machine": machine() | {"threads": args.threads},
    }
    if args.json:
        print(json.dumps(report))
    else:
        show(report)
    sys.exit(0 if is_good(report) else 1)


if __name__ == "__main__":
    main()
