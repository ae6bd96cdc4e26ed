"""What a journal begins with."""

from __future__ import annotations

import shutil
from pathlib import Path

import outdraft
from outdraft.tune.identity import source_digest


def test_sources_that_were_pulled_are_another_version(tmp_path: Path) -> None:
    package = tmp_path / "outdraft"
    shutil.copytree(
        Path(outdraft.__file__).parent / "tune", package, ignore=shutil.ignore_patterns("*.pyc")
    )
    before = source_digest(package)
    assert source_digest(package.rename(tmp_path / "moved")) == before
    package = tmp_path / "moved"
    (package / "notes.md").write_text("no code")
    assert source_digest(package) == before
    with (package / "identity.py").open("a") as file:
        file.write("#")
    changed = source_digest(package)
    assert changed != before
    (package / "identity.py").rename(package / "other.py")
    assert source_digest(package) not in (before, changed)
    assert source_digest() == source_digest(Path(outdraft.__file__).parent) != before
