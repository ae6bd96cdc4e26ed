"""Asking an engine's own Python what it knows.

An engine lives in an environment of its own, so nothing of it is imported here: a short program
runs in its interpreter and prints one JSON object. That takes seconds (the engine is imported), so
the answer is kept until the environment changes.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from outdraft.catalog import default_cache_dir
from outdraft.errors import BackendError, OutdraftError
from outdraft.whole_file import write_json

_TIMEOUT_S = 180.0
_MARK = "OUTDRAFT "  # before the answer: engines print much else

Answer = Mapping[str, Any]


def find_executable(variable: str, name: str, remedy: str) -> Path:
    """From $VARIABLE, else from the PATH; BackendError with the `remedy` where neither has it."""
    named = os.environ.get(variable)
    found = shutil.which(os.path.expanduser(named) if named else name)
    if found is not None:
        return Path(found)
    if named:
        raise BackendError(f"${variable} is {named}, which is no program that can be run")
    raise BackendError(f"{name} is not installed here; {remedy}, or set ${variable} to its program")


def python_of(executable: Path) -> Path:
    """The interpreter a console script runs with: its first line says so; or it is one itself."""
    if executable.name.startswith("python"):
        return executable
    with suppress(OSError), executable.open("rb") as file:
        first, second = file.readline().decode(errors="replace"), file.readline()
        words = first.removeprefix("#!").split()
        if first.startswith("#!") and words and "python" in Path(words[0]).name:
            return Path(words[0])
        if b"exec" in second:  # long paths: '''exec' "/path/of/python" "$0" "$@"
            path = second.decode(errors="replace").split("exec'", 1)[-1].split('"$0"')[0]
            if (named := Path(path.strip().strip('"'))).is_file():
                return named
    for beside in ("python", "python3"):
        if (candidate := executable.parent / beside).is_file():
            return candidate
    raise BackendError(
        f"{executable} does not say which Python it runs with; name that one instead"
    )


def ask(python: Path, program: str, engine: str) -> Answer:
    """What `program` says by its function `answer()`, run in `python`."""
    kept = _kept(python, program)
    if kept is not None:
        with suppress(OSError, ValueError):
            answer: Answer = json.loads(kept.read_text(encoding="utf-8"))
            return answer
    found = _run(python, program, engine)
    if kept is not None:
        with suppress(OutdraftError):  # a cache that cannot be written costs time, not the answer
            write_json(kept, found)
    return found


def _run(python: Path, program: str, engine: str) -> Answer:
    ending = f"\nimport json\nprint({_MARK!r} + json.dumps(answer()))\n"
    try:
        done = subprocess.run(
            [str(python), "-c", program + ending],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
            cwd="/",  # a folder with the engine's name must not be taken for it
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BackendError(f"{python} cannot be asked about {engine}: {error}") from error
    for line in reversed(done.stdout.splitlines()):
        if line.startswith(_MARK):
            answer: Answer = json.loads(line.removeprefix(_MARK))
            return answer
    last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
    raise BackendError(f"{engine} in {python} cannot be used: {last[:200]}")


def _kept(python: Path, program: str) -> Path | None:
    """Where the answer is kept: by interpreter, program and the state of its packages."""
    site = [*python.parent.parent.glob("lib/python3*/site-packages")]
    if not site:
        return None
    digest = hashlib.sha256(program.encode())
    for folder in [python, *site]:  # installing or removing a package touches its folder
        digest.update(f"{folder} {folder.stat().st_mtime_ns}".encode())
    return default_cache_dir() / "engines" / f"{digest.hexdigest()[:32]}.json"
