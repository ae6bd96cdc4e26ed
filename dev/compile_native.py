"""Compiles the engine's C library: which compiler, for which CPUs, with which flags.

Needs Python alone. `make native` runs it; `setup.py` and `build_backend.py` import it.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = Path("outdraft/engine/native")
FOLDER = ROOT / "src" / PACKAGE

# A text must not depend on who compiled the library. So there is no -ffast-math, no
# -march=native and no $CFLAGS; products are fused with sums only where the source says so.
FLAGS = (
    "-std=gnu11", "-O3", "-ffp-contract=off", "-fno-math-errno", "-fPIC",
    "-Wall", "-Wextra", "-Wno-psabi",
)  # fmt: skip
LIBRARIES = ("-lm", "-lpthread")
# Best first; the last runs everywhere. `_levels` in library.py chooses.
X86_LEVELS = {
    "avx512": ("-march=x86-64-v4", "-mavx512vnni"),
    "avx2": ("-march=x86-64-v3",),
    "any": ("-march=x86-64",),
}


def sources() -> list[Path]:
    return sorted(FOLDER.glob("*.c"))


def digest() -> str:
    """Of sources and headers. A library carries it, so that it is not used with others."""
    total = hashlib.sha256()
    for file in sorted(FOLDER.glob("*.[ch]")):
        total.update(file.read_bytes())
    return total.hexdigest()


def levels() -> dict[str, tuple[str, ...]]:
    """The flags of every library that is made on this machine."""
    return X86_LEVELS if platform.machine() in ("x86_64", "AMD64") else {"any": ()}


def compilers() -> Iterator[list[str]]:
    """Commands that may be C compilers: $CC alone, else those of the system, else ziglang."""
    if own := os.environ.get("CC"):
        yield shlex.split(own)
        return
    found = {os.path.realpath(path): path for name in ("cc", "gcc", "clang")
             if (path := shutil.which(name))}  # fmt: skip
    yield from ([path] for path in found.values())
    if find_spec("ziglang"):
        yield [sys.executable, "-m", "ziglang", "cc"]


def takes_sources(compiler: Sequence[str]) -> bool:
    """Whether a compiler knows the flags, the headers and the language of every source."""
    with suppress(OSError, subprocess.CalledProcessError):
        for level in levels().values():
            command = [*_with_flags(compiler, level), "-fsyntax-only", *map(str, sources())]
            subprocess.run(command, check=True, capture_output=True)
        return True
    return False


def compile_into(folder: Path) -> bool:
    """All libraries into a folder, by the first compiler that compiles all of them.

    Where none does, none is left there (one of other sources would be worse), and one line says so.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tried = []
    for compiler in compilers():
        if _compile_with(compiler, folder):
            return True
        tried.append(shlex.join(compiler))
    for old in folder.glob("step-*.so"):
        old.unlink()
    reason = f"{', '.join(tried)} failed" if tried else "there is no C compiler"
    print(f"outdraft: {reason}; the engine works without its C library, more slowly",
          file=sys.stderr)  # fmt: skip
    return False


def _compile_with(compiler: Sequence[str], folder: Path) -> bool:
    """At first aside, so that a process that has an earlier library open keeps it whole."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=".build-") as aside:
        # zig's cache would be in the home folder, which may be read-only or missing.
        environment = {"ZIG_GLOBAL_CACHE_DIR": aside, "ZIG_LOCAL_CACHE_DIR": aside, **os.environ}
        carried = Path(aside, "digest.c")
        carried.write_text(f'const char sources_digest[] = "{digest()}";\n')
        inputs = [*map(str, sources()), str(carried), *LIBRARIES]
        running = []
        for name, level in levels().items():
            output = ["-shared", "-o", f"{aside}/step-{name}.so"]
            command = [*_with_flags(compiler, level), *inputs, *output]
            try:
                running.append(subprocess.Popen(command, env=environment))
            except OSError:
                return False
        statuses = [process.wait() for process in running]
        if any(statuses):
            return False
        for name in levels():
            os.replace(f"{aside}/step-{name}.so", folder / f"step-{name}.so")
    return True


def _with_flags(compiler: Sequence[str], level: Sequence[str]) -> list[str]:
    command = [*compiler, *FLAGS]
    if sys.platform != "darwin":
        # Exported, and yet no other library's function of the same name is called instead.
        command.append("-fvisibility=protected")
    if not _is_zig(compiler):
        return [*command, *level]
    # zig has names of its own for CPUs, takes this machine's where none is named, and adds a
    # megabyte of debugging information about its runtime.
    named = ["-" + flag[1:].replace("-", "_") for flag in level] or ["-mcpu=baseline"]
    return [*command, *named, "-s"]


def _is_zig(compiler: Sequence[str]) -> bool:
    return "ziglang" in compiler or Path(compiler[0]).name == "zig"


if __name__ == "__main__":
    sys.exit(0 if compile_into(FOLDER) else 1)
