"""What stands for the models, files and servers that the docs name, in one folder."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib import request

from outdraft.testing.fake_script import Script
from outdraft.testing.fake_server import FakeServer
from outdraft.testing.tiny_heads import tiny_head
from outdraft.testing.tiny_models import tiny_model

SMALL = ("--kv-cache-memory-bytes", "8000000")  # to clear the usual GB takes half a second
OFF = Script(ttft_s=0.006, tpot_s=0.006)
SCRIPTS = {  # of servers with speculation; all others run without
    "http://h1:8001": replace(OFF, k=4, acceptance=0.8, speedup=1.6),
    "http://h2:8000": replace(OFF, k=3, acceptance=0.5, speedup=1.3),
    "http://127.0.0.1:8002": replace(OFF, k=4, acceptance=0.8, speedup=2.0),
}
_URL = re.compile(r"https?://[\w.-]+(?::\d+)?")
_SPECULATION = {"method": "ngram", "k": 4}


class World:
    """The folder of a reader who has a model, a draft, logged traffic and some servers."""

    def __init__(self, folder: Path, servers: ExitStack) -> None:
        self.folder = folder
        self._servers = servers
        self._urls: dict[str, str] = {}
        self.target = tiny_model(folder / "my-model", "llama", context=4096)
        tiny_model(folder / "my-draft", "llama", perturb=0.1, context=4096)
        head = tiny_head(folder / "my-eagle3-head", self.target)
        self._names = {"smollm2-135m-eagle": str(head)}
        lines = [{"prompt": f"say {n} twice", "category": "chat"} for n in range(12)]
        (folder / "traffic.jsonl").write_text("\n".join(map(json.dumps, lines)))
        (folder / "mine.json").write_text(json.dumps(_SPECULATION))
        (folder / "mine.toml").write_text('method = "ngram"\nk = 4\n')

    def url(self, named: str) -> str:
        """The server that stands for one of the docs."""
        if named not in self._urls:
            server = FakeServer(SCRIPTS.get(named, OFF), pages={"/version": {"version": "0.22.1"}},
                                model="org/target")  # fmt: skip
            self._urls[named] = self._servers.enter_context(server).url
        return self._urls[named]

    def stand_in(self, named: str, url: str) -> None:
        """A server that is up stands for one of the docs."""
        self._urls[named] = url

    def words(self, written: tuple[str, ...]) -> list[str]:
        """The same command in this folder: with its models, and servers that are there."""
        named = [self._names.get(word, word) for word in written]
        placed = [re.sub(r"^/(srv|var)\b", str(self.folder), word) for word in named]
        return [_URL.sub(lambda match: self.url(match[0]), word) for word in placed]


@contextmanager
def world_in(folder: Path) -> Iterator[World]:
    before = Path.cwd()
    with ExitStack() as servers:
        world = World(folder, servers)
        os.chdir(folder)
        try:
            yield world
        finally:
            os.chdir(before)


@contextmanager
def serving(world: World, words: list[str]) -> Iterator[str]:
    """The address of `outdraft serve …` on a tiny model, and that it ends well."""
    command = [sys.executable, "-m", "outdraft", *words, "--port", "0", *SMALL]
    command += ["--target", str(world.target)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            line = next(line for line in server.stderr if " at http://" in line)
            yield line.split(" at ")[1].strip()
        finally:
            server.terminate()
    assert server.returncode == 0


def ask(url: str, body: Any, **headers: str) -> Any:
    headers = {"Content-Type": "application/json", **headers}
    asked = request.Request(url, json.dumps(body).encode(), headers)
    with request.urlopen(asked, timeout=60) as response:
        return json.load(response)
