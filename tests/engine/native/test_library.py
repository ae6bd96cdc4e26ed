"""Which library is loaded, and that the engine does without."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from outdraft.engine.native import library as native
from outdraft.errors import OutdraftError
from outdraft.testing.tiny_models import tiny_model

# Prints the runner's name and a text.
WRITE = """
import sys
from outdraft import SamplingParams, load_engine
engine = load_engine(sys.argv[1], kv_cache_bytes=8_000_000)
[text] = engine.generate(["one two three"], SamplingParams(max_tokens=8, ignore_eos=True))
print(type(engine._runner).__name__, len(text.tokens))
"""


def write(folder: Path, **environment: str) -> str:
    target = tiny_model(folder / "target", "llama", head_dim=32)
    done = subprocess.run(
        [sys.executable, "-c", WRITE, str(target)],
        env=os.environ | environment, capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    return done.stdout


def test_the_engine_writes_without_the_library(tmp_path: Path) -> None:
    assert write(tmp_path, OUTDRAFT_NO_NATIVE="1") == "EagerRunner 8\n"


@pytest.mark.parametrize(("value", "is_off"), [("1", True), ("0", False), ("", False)])
def test_a_variable_turns_it_off(value: str, is_off: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if native.library() is None:
        pytest.skip("the library is not compiled here")
    monkeypatch.setenv("OUTDRAFT_NO_NATIVE", value)
    assert (native.library.__wrapped__() is None) is is_off


def test_what_cannot_be_loaded_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OUTDRAFT_NO_NATIVE", raising=False)
    monkeypatch.setattr(native, "__file__", str(tmp_path / "library.py"))
    assert native.library.__wrapped__() is None
    (tmp_path / "step-any.so").write_bytes(b"of another system")
    assert native.library.__wrapped__() is None


def test_a_library_of_other_sources_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if native.library() is None:
        pytest.skip("the library is not compiled here")
    shutil.copytree(Path(native.__file__).parent, tmp_path / "native")
    monkeypatch.setattr(native, "__file__", str(tmp_path / "native" / "library.py"))
    assert native.library.__wrapped__() is not None
    with (tmp_path / "native" / "step.h").open("a") as header:
        header.write("/* a field more */")
    with pytest.raises(OutdraftError, match=r"of other C sources .*; run `make native`"):
        native.library.__wrapped__()
