"""Questions to an engine's own Python.

An engine lives in an environment of its own, so nothing of it is imported here: a short program
runs in its interpreter and prints one JSON object. That takes seconds (the engine is imported), so
the answer is kept until the environment changes.
"""

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from outdraft.backends.help_text import last_words, run_program
from outdraft.catalog import default_cache_dir
from outdraft.errors import BackendError, OutdraftError
from outdraft.whole_file import write_json

_MARK = "OUTDRAFT "  # before the answer: engines print much else


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


def ask_python(python: Path, program: str, engine: str) -> Mapping[str, Any]:
    """What the function `answer()` of `program` returns, run in `python`."""
    answer: Mapping[str, Any]
    kept = _cache_file(python, program)
    if kept is not None:
        with suppress(OSError, ValueError):
            answer = json.loads(kept.read_text(encoding="utf-8"))
            return answer
    ending = f"\nimport json\nprint({_MARK!r} + json.dumps(answer()))\n"
    done = run_program([str(python), "-c", program + ending])
    marked = [line for line in done.stdout.splitlines() if line.startswith(_MARK)]
    if not marked:
        raise BackendError(f"{engine} in {python} cannot be used: {last_words(done)}")
    answer = json.loads(marked[-1].removeprefix(_MARK))
    if kept is not None:
        with suppress(OutdraftError):  # a cache that cannot be written costs time, not the answer
            write_json(kept, answer)
    return answer


def _cache_file(python: Path, program: str) -> Path | None:
    """Where the answer is kept: by interpreter, program and the state of its packages."""
    site = [*python.parent.parent.glob("lib/python3*/site-packages")]
    if not site or not python.exists():
        return None
    digest = hashlib.sha256(program.encode())
    for folder in [python, *site]:  # installing or removing a package touches its folder
        digest.update(f"{folder} {folder.stat().st_mtime_ns}".encode())
    return default_cache_dir() / "engines" / f"{digest.hexdigest()[:32]}.json"
