"""The fake server as a process of its own.

    python -m outdraft.testing.fake_process --fast --script '{"ttft_s": 0.02, "tpot_s": 0.002}'

Its URL is the first line it prints. It ends with its standard input, or when interrupted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from outdraft.testing.fake_script import Script
from outdraft.testing.fake_server import FakeServer


@contextmanager
def fake_server_process(*, fast: bool = False, **script: Any) -> Iterator[str]:
    """Its URL; `script` are the values of Script that can be written as JSON."""
    command = [sys.executable, "-m", "outdraft.testing.fake_process"]
    command += ["--script", json.dumps(script), *(["--fast"] if fast else [])]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            url = process.stdout.readline().strip()
            if not url:
                raise RuntimeError(f"the fake server ended with code {process.wait()}")
            yield url
        finally:
            process.stdin.close()
            process.wait(10)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--fast", action="store_true", help="one answer for everybody, made once")
    parser.add_argument("--script", type=json.loads, default={}, help="values of Script, as JSON")
    parser.add_argument("--failures", type=json.loads, default={}, help='e.g. {"http_503": 10}')
    args = parser.parse_args()
    server = FakeServer(
        _script(args.script),
        failures=args.failures,
        fast=args.fast,
        port=args.port,
        new_event_loop=_fastest_loop(),
    )

    def ended_with_input() -> None:
        sys.stdin.read()
        server.stop()

    threading.Thread(target=ended_with_input, daemon=True).start()
    with suppress(KeyboardInterrupt):
        server.serve(lambda: print(server.url, flush=True))


def _script(values: Mapping[str, Any]) -> Script:
    acceptance = values.get("acceptance")
    if isinstance(acceptance, Mapping):  # JSON has no numbers as keys
        by_temperature = {float(key): value for key, value in acceptance.items()}
        values = {**values, "acceptance": by_temperature}
    return Script(**values)


def _fastest_loop() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


if __name__ == "__main__":
    main()
