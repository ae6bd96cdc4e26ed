"""The package as it is built, installed and tried, and how its C library is compiled."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from outdraft.engine.native.library import library
from outdraft.testing.tiny_models import tiny_model
from tests.engine.native.test_library import WRITE

ROOT = Path(__file__).parent.parent
NATIVE = "outdraft/engine/native"

# What pip does in an environment that has setuptools.
BUILD = """
import sys
sys.path.insert(0, "dev")
import build_backend
print(getattr(build_backend, f"build_{sys.argv[1]}")(sys.argv[2]))
"""
WHERE = "from outdraft.engine.native.library import library; print(library()._name)\n"


@pytest.fixture(scope="module")
def native() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "dev")
        yield importlib.import_module("compile_native")


@pytest.fixture(scope="module")
def compiler(native: ModuleType) -> str:
    for command in native.compilers():
        if native.takes_sources(command):
            return " ".join(command)
    pytest.skip("there is no C compiler here")


def copy_tree(folder: Path, *left_out: str) -> Path:
    """What a package is made of. Builds leave files behind: not in the tree of a developer."""
    leave_out = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.so", *left_out)
    for name in ("src", "dev"):
        shutil.copytree(ROOT / name, folder / name, ignore=leave_out)
    for name in ("setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    return folder


def build(kind: str, tree: Path, out: Path, compiler: str) -> tuple[Path, str]:
    """The file and what was said on stderr."""
    done = subprocess.run(
        [sys.executable, "-c", BUILD, kind, str(out)],
        cwd=tree, env=os.environ | {"CC": compiler}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return out / done.stdout.splitlines()[-1], done.stderr


def libraries(wheel: Path) -> list[str]:
    return sorted(name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".so"))


@pytest.mark.slow  # `make test-wheel`, which CI runs, tries a wheel too
@pytest.mark.parametrize("is_whole", [False, True])
def test_a_wheel_is_built_installed_and_tried(
    is_whole: bool, tmp_path: Path, native: ModuleType, compiler: str
) -> None:
    """Whole, or without the drafts and the optimizer, which take seconds each."""
    if not is_whole:
        quick = tmp_path / "quick"
        quick.write_text(f'#!/bin/sh\nexec {compiler} "$@" -O1\n')
        quick.chmod(0o755)
        compiler = str(quick)
    tree = copy_tree(tmp_path / "tree", *([] if is_whole else ["drafts"]))
    archive, _ = build("sdist", tree, tmp_path, compiler)
    with tarfile.open(archive) as file:
        file.extractall(tmp_path, filter="data")
    unpacked = tmp_path / archive.name.removesuffix(".tar.gz")

    wheel, _ = build("wheel", unpacked, tmp_path, compiler)
    python, abi, system = wheel.stem.split("-")[2:]
    assert (python, abi) == ("py3", "none")
    assert system != "any"
    assert libraries(wheel) == sorted(f"{NATIVE}/step-{level}.so" for level in native.levels())
    names = zipfile.ZipFile(wheel).namelist()
    assert not [name for name in names if name.endswith((".c", ".h")) or "compile_native" in name]
    assert any("catalog/drafts/" in name for name in names) is is_whole

    installed = tmp_path / "installed"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--target", str(installed), str(wheel)], check=True, timeout=120)
    target = tiny_model(tmp_path / "target", "llama", head_dim=32)
    tried = subprocess.run(
        [sys.executable, "-c", WHERE + WRITE, str(target)],
        env=os.environ | {"PYTHONPATH": str(installed), "OUTDRAFT_NO_NATIVE": "0"},
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    where, written = tried.stdout.splitlines()
    assert Path(where).parent == installed / NATIVE
    assert written == "CompiledRunner 8"


def test_installation_succeeds_where_nothing_compiles(tmp_path: Path) -> None:
    tree = copy_tree(tmp_path / "tree", "drafts")
    wheel, said = build("wheel", tree, tmp_path, "false")
    assert libraries(wheel) == []
    [line] = [line for line in said.splitlines() if line.startswith("outdraft:")]
    assert line == "outdraft: false failed; the engine works without its C library, more slowly"


def test_it_is_compiled_where_it_can_be(compiler: str) -> None:
    """Else all tests of it would be skipped, and nobody would notice."""
    if os.environ.get("OUTDRAFT_NO_NATIVE", "0") not in ("", "0"):
        pytest.skip("OUTDRAFT_NO_NATIVE is set")
    assert library() is not None, f"`make native` has to work with {compiler}"


def test_compilers_in_their_order(
    tmp_path: Path, native: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("gcc", "clang"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "cc").symlink_to("gcc")
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(native, "find_spec", lambda name: name)
    *system, zig = native.compilers()
    assert {Path(command[0]).resolve().name for command in system} == {"gcc", "clang"}
    assert len(system) == 2, "cc is gcc"
    assert zig == [sys.executable, "-m", "ziglang", "cc"]
    monkeypatch.setenv("CC", "ccache 'my cc'")
    assert list(native.compilers()) == [["ccache", "my cc"]]


@pytest.mark.parametrize(("has_compiler", "asked"), [(True, 0), (False, 1)])
def test_a_compiler_is_fetched_only_where_there_is_none(has_compiler: bool, asked: int) -> None:
    program = f"""
import build_backend as backend
backend.takes_sources = lambda compiler: {has_compiler}
backend.compilers = lambda: iter([["cc"]])
backend.build_meta.get_requires_for_build_wheel = lambda settings: []
print([each.partition(">=")[0] for each in backend.get_requires_for_build_wheel()])
"""
    # A process of its own: setuptools must come before distutils, which others here import.
    command = [sys.executable, "-W", "ignore", "-c", program]
    said = subprocess.run(command, cwd=ROOT / "dev", check=True, capture_output=True, text=True)
    assert said.stdout.strip() == str(["ziglang"] * asked)


def test_a_compiler_that_fails_is_none(native: ModuleType) -> None:
    assert not native.takes_sources(["false"])
    assert not native.takes_sources(["/no/such/compiler"])


@pytest.mark.parametrize("compiler", [["gcc"], ["python", "-m", "ziglang", "cc"]])
def test_flags_keep_the_bits(compiler: list[str], native: ModuleType) -> None:
    for level in native.X86_LEVELS.values():
        flags = native._with_flags(compiler, level)
        assert "-ffp-contract=off" in flags
        assert not {"-ffast-math", "-Ofast", "-march=native"} & set(flags)
        assert any(flag.startswith("-march=x86") for flag in flags)
