"""Builds the wheel and tries it in clean environments: alone, then with each extra in turn.

    python dev/try_wheel.py [--keep FOLDER]

Without an extra there is no torch: help, plan, emit, export and bench work, and what needs the
engine says what to install. Extras that need torch share one environment, the smaller first:
torch is large. The target is a draft that ships in the wheel, so nothing is fetched but packages.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.request import Request, urlopen

ROOT = Path(__file__).resolve().parent.parent
SHIPPED = "smollm2-135m-draft"
SPECULATION = '{"method": "ngram", "k": 4}'


class Environment:
    """A virtual environment of its own, and a folder in which nothing of the tree is seen."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.bin = folder / "venv" / "bin"
        self.wheel = wheel
        self.folder = folder / "reader"
        self.folder.mkdir(parents=True)
        own = {"HOME": str(self.folder), "PATH": f"{self.bin}:{os.environ['PATH']}"}
        hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE")
        self.env = {key: value for key, value in os.environ.items() if key not in hidden} | own
        subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)

    def install(self, extra: str) -> None:
        what = f"{self.wheel}[{extra}]" if extra else str(self.wheel)
        pip = [str(self.bin / "python"), "-m", "pip", "install", "--quiet", "--no-compile",
               "--disable-pip-version-check", what]  # fmt: skip
        subprocess.run(pip, check=True, cwd=self.folder)  # with the caller's settings of pip

    def has(self, module: str) -> bool:
        return self.run("python", "-c", f"import {module}", code=None).returncode == 0

    def run(
        self, *words: str, code: int | None = 0, given: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """The program, which has to end with `code` (None: with any)."""
        done = subprocess.run(
            [str(self.bin / words[0]), *words[1:]],
            env=self.env, cwd=self.folder, input=given, capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        if code is not None and done.returncode != code:
            said = f"{done.stdout[-1000:]}{done.stderr[-2000:]}"
            raise SystemExit(f"test-wheel: {' '.join(words)}: code {done.returncode}\n{said}")
        return done


def expect(words: str, said: str) -> None:
    if words not in said:
        raise SystemExit(f"test-wheel: {words!r} is not in: {said[-2000:]}")


def try_core(here: Environment) -> None:
    """Everything that only plans and measures."""
    for module in ("torch", "fastapi"):
        if here.has(module):
            raise SystemExit(f"test-wheel: {module} came with the core")
    for command in [[], *([name] for name in commands(here))]:
        expect("usage: outdraft", here.run("outdraft", *command, "--help").stdout)
    pair = ("--target", "llama-3.1-70b", "--draft", "llama-3.1-8b", "--gpu", "h100:2",
            "--target-quantization", "int8", "--max-model-len", "8192")  # fmt: skip
    expect("\nserves: ", here.run("outdraft", "plan", *pair).stdout)
    emit = ("emit", "--speculation", "-", "--engine", "vllm", "--target", "org/model")
    expect("--speculative-config", here.run("outdraft", *emit, given=SPECULATION).stdout)
    here.run("outdraft", "watch", "--write-boards", "boards")
    refused = here.run("outdraft", "generate", "Hello", "--target", SHIPPED, code=2)
    expect("run pip install 'outdraft[server]'", refused.stderr)
    try_bench(here)


def try_bench(here: Environment) -> None:
    """The load client, against a scripted server."""
    program = [str(here.bin / "python"), "-m", "outdraft.testing.fake_process"]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        program, env=here.env, cwd=here.folder, stdin=pipe, stdout=pipe, text=True
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        load = ("--requests", "20", "--concurrency", "2", "--max-tokens", "8", "--json")
        told = here.run("outdraft", "bench", url, *load, code=None).stdout  # 1: a busy machine
        server.stdin.close()
    if not json.loads(told)["summary"]["tokens_per_s"] > 0:
        raise SystemExit(f"test-wheel: bench measured nothing: {told[-1000:]}")


def try_load(here: Environment) -> None:
    if not here.has("uvloop") or here.has("torch"):
        raise SystemExit("test-wheel: [load] is uvloop, and no torch")
    try_bench(here)


def try_engine(here: Environment) -> None:
    if here.has("fastapi"):
        raise SystemExit("test-wheel: [engine] brought the server")
    text = ("generate", "one two one two", "--target", SHIPPED, "--max-tokens", "16", "--json")
    told = [
        json.loads(here.run("outdraft", *text, *speculation).stdout)["token_ids"]
        for speculation in (("--method", "off"), ("--method", "ngram", "--k", "3"))
    ]
    if not (len(told[0]) == 16 and told[0] == told[1]):
        raise SystemExit(f"test-wheel: speculation changed the text: {told}")
    library = "from outdraft.engine.native.library import library; print(library() is not None)"
    if here.run("python", "-c", library).stdout.strip() != "True":
        print("test-wheel: no C library in the wheel: no compiler here", file=sys.stderr)
    refused = here.run("outdraft", "serve", "--target", SHIPPED, "--port", "0", code=2)
    expect("run pip install 'outdraft[server]'", refused.stderr)


def try_server(here: Environment) -> None:
    command = [str(here.bin / "outdraft"), "serve", "--target", SHIPPED, "--port", "0"]
    with subprocess.Popen(
        command, env=here.env, cwd=here.folder, stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stderr is not None
        try:
            url = next(line for line in server.stderr if " at http://" in line).split(" at ")[1]
            body = json.dumps({"prompt": "one two", "max_tokens": 8}).encode()
            asked = Request(
                f"{url.strip()}/v1/completions", body, {"Content-Type": "application/json"}
            )
            with urlopen(asked, timeout=120) as answer:
                expect('"completion_tokens":8', answer.read().decode().replace(" ", ""))
        finally:
            server.terminate()
    if server.returncode:
        raise SystemExit(f"test-wheel: serve ended with code {server.returncode}")


def try_dev(here: Environment) -> None:
    for program in ("pytest", "ruff", "mypy", "lint-imports", "mkdocs"):
        here.run(program, "--help")


def commands(here: Environment) -> list[str]:
    listed = here.run("outdraft", "--help").stdout.partition("\ncommands:\n")[2]
    return [line.split()[0] for line in listed.partition("\n\n")[0].splitlines() if line.strip()]


# Environments, and what is installed and tried in each, one after the other.
PLAN: Sequence[Sequence[tuple[str, Callable[[Environment], None]]]] = (
    (("", try_core), ("load", try_load)),
    (("engine", try_engine), ("server", try_server), ("dev", try_dev)),
)


def build(folder: Path) -> Path:
    """From a copy of what git knows: a build leaves files behind."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    tree = folder / "tree"
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file() and not name.startswith(("tests/", "docs/", "benchmarks/")):
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_bytes((ROOT / name).read_bytes())
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check",
           "--no-deps", "--wheel-dir", str(folder), str(tree)]  # fmt: skip
    subprocess.run(pip, check=True)
    [wheel] = folder.glob("*.whl")
    return wheel


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="work here and keep it")
    args = parser.parse_args()
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    tried = {extra for each in PLAN for extra, _ in each}
    assert tried == {"", *extras["optional-dependencies"]}, "an extra is not tried"
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        wheel = build(folder)
        print(f"test-wheel: {wheel.name}, {time.monotonic() - began:.0f} s", flush=True)
        for number, steps in enumerate(PLAN):
            here = Environment(folder / f"environment-{number}", wheel)
            for extra, attempt in steps:
                began = time.monotonic()
                here.install(extra)
                installed = time.monotonic()
                attempt(here)
                name = f"outdraft[{extra}]" if extra else "outdraft"
                print(f"test-wheel: {name} installed in {installed - began:.0f} s, tried in "
                      f"{time.monotonic() - installed:.0f} s", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
