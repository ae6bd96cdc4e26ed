"""The fake server as a process of its own.

    python -m outdraft.testing.fake_process --fast --script '{"ttft_s": 0.02, "tpot_s": 0.002}'

The first line that it prints is its URL. It ends with its standard input, or when interrupted.
"""

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
    """The URL of the process; `script` are those values of Script that JSON can hold."""
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


def _main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--fast", action="store_true", help="make one answer and send it to all")
    parser.add_argument("--script", type=json.loads, default={}, help="values of Script, as JSON")
    parser.add_argument("--failures", type=json.loads, default={}, help='e.g. {"http_503": 10}')
    args = parser.parse_args()
    new_event_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    with suppress(ImportError):
        import uvloop  # optional: serves more requests per second

        new_event_loop = uvloop.new_event_loop
    script, acceptance = args.script, args.script.get("acceptance")
    if isinstance(acceptance, Mapping):  # JSON has no numbers as keys
        script["acceptance"] = {float(key): value for key, value in acceptance.items()}
    options = {"failures": args.failures, "fast": args.fast, "port": args.port}
    server = FakeServer(Script(**script), **options, new_event_loop=new_event_loop)

    def end_with_input() -> None:
        sys.stdin.read()
        server.stop()

    threading.Thread(target=end_with_input, daemon=True).start()
    with suppress(KeyboardInterrupt):
        server.serve(lambda: print(server.url, flush=True))


if __name__ == "__main__":
    _main()
