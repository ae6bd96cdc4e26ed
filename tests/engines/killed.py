"""`outdraft tune` as a process of its own, which is killed at chosen moments."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LIMIT_S = 900.0  # of one go
_MARK = "OUTDRAFT_TEST_OF"  # in the environment of the run and of all that it starts
_END_S = 20.0  # in which guards end what a killed run has left
_POLL_S = 0.02

Blocks = list[dict[str, Any]]
Moment = Callable[[Blocks], bool]  # what the journal holds → whether it is time


@dataclass
class Killable:
    """The same command again and again, with the same folder."""

    folder: Path
    flags: Sequence[str]
    env: dict[str, str] = field(default_factory=dict)
    seen: bytes = b""  # whole lines of the journal, before the last kill

    @property
    def journal(self) -> Path:
        return self.folder / "journal.jsonl"

    def run(self) -> str:
        """To the end; what it said."""
        with self._start() as process:
            said, _ = process.communicate(timeout=LIMIT_S)
        assert process.returncode == 0, said
        self._check_kept()
        return said

    def run_until(self, moment: Moment, later_s: float = 0.0) -> None:
        """Kills the run, and nothing else, so many seconds after the moment. Its engines end."""
        until = time.monotonic() + LIMIT_S
        with self._start() as process:
            while not self._is_at_work() or not moment(self.blocks()):
                assert process.poll() is None, process.communicate()[0]
                assert time.monotonic() < until
                time.sleep(_POLL_S)
            time.sleep(later_s)
            assert process.poll() is None, "it ended before it was killed"
            process.kill()
            process.communicate()
        self._check_kept()
        assert self.left() == []

    def entries(self) -> list[dict[str, Any]]:
        """Of the journal, without its header."""
        return [json.loads(line) for line in self._whole_lines().splitlines()[1:]]

    def blocks(self) -> Blocks:
        return [each["block"] for each in self.entries() if "block" in each]

    def results(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "results.json").read_text())
        return found

    def left(self) -> list[str]:
        """Commands of processes that the run has started, or is, and that do not end by
        themselves."""
        until = time.monotonic() + _END_S
        while (found := self._processes()) and time.monotonic() < until:
            time.sleep(0.1)
        return found

    def _start(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "outdraft", "tune", *self.flags, "--out", self.folder]
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, **self.env, _MARK: str(self.folder)},
        )  # fmt: skip

    def _is_at_work(self) -> bool:
        """An engine was started since this run began to wait for one."""
        return len(self._processes()) > 1

    def _processes(self) -> list[str]:
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # ended meanwhile
                if self._is_marked(entry) or self._writes_here(entry):
                    found.append((entry / "cmdline").read_text().replace("\0", " "))
        return [each for each in found if each]  # one that has ended has no command any more

    def _is_marked(self, entry: Path) -> bool:
        mark = f"{_MARK}={self.folder}".encode()
        return mark in (entry / "environ").read_bytes().split(b"\0")

    def _writes_here(self, entry: Path) -> bool:
        """To a log: vLLM's processes give themselves titles, which overwrite the environment."""
        places = (os.readlink(each) for each in (entry / "fd").iterdir())
        return any(Path(each).is_relative_to(self.folder) for each in places)

    def _whole_lines(self) -> bytes:
        text = self.journal.read_bytes() if self.journal.exists() else b""
        return text[: text.rfind(b"\n") + 1]

    def _check_kept(self) -> None:
        now = self._whole_lines()
        assert now.startswith(self.seen), "what was measured stays as it was"
        self.seen = now
