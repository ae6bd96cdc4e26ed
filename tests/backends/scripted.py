"""An engine that does as it is told, as a program and as a backend.

    python scripted.py PORT BEHAVIOUR …

serve           answers as a server of models
workers         … with processes of its own: one in its group, one in a session of its own, and one
                whose parent has ended and that does not listen to SIGTERM
say=WORDS       writes a line
wait=S          then nothing for so long
taken=FILE      says that its port is taken, the first time
exit=CODE       ends
kill            … by SIGKILL
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from outdraft.backends.backend import Capabilities, Container, Launch, Serving, Traffic
from outdraft.backends.installation import Installation
from outdraft.speculation import Speculation

SLEEP = "import time; time.sleep(300)"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEP}"
ORPHAN = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {STUBBORN!r}], start_new_session=True)"  # fmt: skip # noqa: E501


class ScriptedEngine:
    name = title = "scripted"

    def __init__(self, *behaviour: str) -> None:
        self.installation = Installation("1", frozenset())
        self._behaviour = behaviour

    def capabilities(self) -> Capabilities:
        raise NotImplementedError

    def launch(self, serving: Serving, speculation: Speculation, port: int) -> Launch:
        return Launch((sys.executable, __file__, str(port), *self._behaviour))

    def warnings(
        self, serving: Serving, speculation: Speculation, traffic: Traffic
    ) -> tuple[str, ...]:
        return ()

    def container(self) -> Container:
        raise NotImplementedError


def main(port: int, behaviour: list[str]) -> None:
    for each in behaviour:
        what, _, value = each.partition("=")
        if what == "serve":
            _serve(port)
        elif what == "workers":
            subprocess.Popen([sys.executable, "-c", SLEEP])
            subprocess.Popen([sys.executable, "-c", SLEEP], start_new_session=True)
            subprocess.run([sys.executable, "-c", ORPHAN], check=True)
        elif what == "say":
            print(value, flush=True)
        elif what == "wait":
            time.sleep(float(value))
        elif what == "taken" and not Path(value).exists():
            Path(value).touch()
            sys.exit("error: address already in use")
        elif what == "exit":
            sys.exit(int(value))
        elif what == "kill":
            os.kill(os.getpid(), signal.SIGKILL)


def _serve(port: int) -> None:
    from outdraft.testing.fake_server import FakeServer

    server = FakeServer(port=port)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    server.serve(lambda: print("listening", flush=True))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
