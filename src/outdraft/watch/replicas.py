"""Which servers are watched: addresses, files of them, names with many addresses."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit, urlunsplit

from outdraft.errors import OptionError
from outdraft.observe.fetch import redacted

MAX_REPLICAS = 1_000
_MAX_FILE_BYTES = 4 << 20
_RESOLVE_LIMIT_S = 5.0
_EXAMPLE = "write e.g. http://127.0.0.1:8000"

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]


@dataclass(frozen=True, slots=True)
class Replica:
    name: str  # short, unique, without credentials
    url: str = field(repr=False)  # may hold a password: for `redacted` only


@dataclass(frozen=True, slots=True)
class Found:
    replicas: tuple[Replica, ...]
    problems: tuple[str, ...] = ()  # one line each; what was known before stays in `replicas`


class Replicas:
    """`find` is called again and again: a source that fails keeps what it said the last time."""

    def __init__(
        self, urls: Iterable[str], targets: Path | None = None, resolve: Resolve | None = None
    ) -> None:
        """OptionError where an address cannot be one, or the file is not there."""
        self._resolve = resolve or resolve_addresses
        self._targets = targets
        self._urls = [_checked(url) for url in urls]
        self._known: dict[str, tuple[str, ...]] = {}  # of names with many addresses
        self._listed: tuple[str, ...] = ()
        if targets is not None:
            self._listed = read_targets(targets)

    async def find(self) -> Found:
        problems: list[str] = []
        if self._targets is not None:
            try:
                self._listed = await asyncio.to_thread(read_targets, self._targets)
            except OptionError as failure:
                problems.append(str(failure))
        every = (*self._urls, *self._listed)
        names = dict.fromkeys(url for url in every if url.startswith("dns://"))
        answers = await asyncio.gather(*(self._addresses(url) for url in names))
        for url, answer in zip(names, answers, strict=True):
            if isinstance(answer, str):
                problems.append(answer)
            else:
                self._known[url] = answer
        urls = dict.fromkeys(
            address
            for url in every
            for address in (self._known.get(url, ()) if url in names else (url,))
        )
        if len(urls) > MAX_REPLICAS:
            problems.append(f"{len(urls):,} replicas; the first {MAX_REPLICAS:,} are watched")
        return Found(name_replicas(list(urls)[:MAX_REPLICAS]), tuple(problems))

    async def _addresses(self, url: str) -> tuple[str, ...] | str:
        """Or why there are none."""
        parts = urlsplit(url)
        assert parts.hostname is not None  # checked
        port = parts.port or 80
        try:
            async with asyncio.timeout(_RESOLVE_LIMIT_S):
                hosts = await self._resolve(parts.hostname, port)
        except TimeoutError:
            return f"{redacted(url)}: no answer to its name within {_RESOLVE_LIMIT_S:g} s"
        except OSError as failure:
            return f"{redacted(url)}: {failure.strerror or 'its name is not known'}"
        return tuple(_at_address(parts, host, port) for host in sorted(set(hosts)))


async def resolve_addresses(host: str, port: int) -> Sequence[str]:
    """All A and AAAA records."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


def read_targets(path: Path) -> tuple[str, ...]:
    """Of a file with a URL in each line and comments after #, or of Prometheus' file_sd JSON."""
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_FILE_BYTES + 1)
    except OSError as failure:
        raise OptionError(f"{path}: {(failure.strerror or 'cannot be read').lower()}") from None
    if len(content) > _MAX_FILE_BYTES:
        raise OptionError(
            f"{path} has more than {_MAX_FILE_BYTES >> 20} MiB; is it the right file?"
        )
    text = str(content, "utf-8", errors="replace")
    if text.lstrip()[:1] in ("[", "{"):
        return _service_discovery(text, path)
    found: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        # A # inside an address has a space before it only where a comment begins.
        address = (" " + line).partition(" #")[0].strip()
        if address:
            found.append(_checked(address, f"{path}, line {number}: "))
    return tuple(dict.fromkeys(found))


def _service_discovery(text: str, path: Path) -> tuple[str, ...]:
    wrong = f'{path} is no file_sd JSON; it is [{{"targets": ["host:port"], "labels": {{}}}}]'
    try:
        groups: Any = json.loads(text)
    except (ValueError, RecursionError):
        raise OptionError(wrong) from None
    if not isinstance(groups, list):
        raise OptionError(wrong)
    found: list[str] = []
    for group in groups:
        targets = group.get("targets") if isinstance(group, Mapping) else None
        labels = (group.get("labels") if isinstance(group, Mapping) else None) or {}
        if not isinstance(targets, list) or not isinstance(labels, Mapping):
            raise OptionError(wrong)
        scheme = str(labels.get("__scheme__", "http"))
        page = str(labels.get("__metrics_path__", ""))
        for target in targets:
            if not isinstance(target, str):
                raise OptionError(wrong)
            found.append(_checked(f"{scheme}://{target}{page}", f"{path}: "))
    return tuple(dict.fromkeys(found))


def name_replicas(urls: Sequence[str]) -> tuple[Replica, ...]:
    """host:port, with the scheme where the port does not tell it, the path where two have the same,
    and a number where that does not help."""
    hosts = [_host(url) for url in urls]
    replicas: list[Replica] = []
    taken: set[str] = set()
    for url, host in zip(urls, hosts, strict=True):
        name = host if hosts.count(host) == 1 else host + _path(url)
        number = 1
        while name in taken:
            number += 1
            name = f"{host}{_path(url)} ({number})"
        taken.add(name)
        replicas.append(Replica(name, url))
    return tuple(replicas)


def _checked(url: str, where: str = "") -> str:
    """With its scheme. OptionError, without what may be a password, where it is no address."""
    full = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(full)
        port = parts.port
        is_good = parts.scheme in ("http", "https", "dns") and bool(parts.hostname)
    except ValueError:
        port, is_good = None, False
    if not is_good or any(letter.isspace() or not letter.isprintable() for letter in full):
        raise OptionError(f"{where}{redacted(url)[:200]!r} is no address of a server; {_EXAMPLE}")
    if parts.scheme == "dns" and port is None:
        raise OptionError(f"{where}{redacted(url)[:200]!r} has no port; write e.g. dns://name:8000")
    return full


def _at_address(parts: SplitResult, host: str, port: int) -> str:
    """The URL of one of a name's addresses, with the credentials and the path of the name's."""
    user, at, _ = parts.netloc.rpartition("@")
    address = f"[{host}]" if ":" in host else host
    return urlunsplit(("http", f"{user}{at}{address}:{port}", parts.path, parts.query, ""))


def _host(url: str) -> str:
    parts = urlsplit(url)
    host = parts.hostname or ""
    address = f"[{host}]" if ":" in host else host
    port = parts.port or (443 if parts.scheme == "https" else 80)
    # Who has the name alone, as a command in an alarm, takes the port for the scheme.
    is_told_by_port = (parts.scheme == "https") == (port == 443)
    return f"{'' if is_told_by_port else f'{parts.scheme}://'}{address}:{port}"


def _path(url: str) -> str:
    return urlsplit(url).path.rstrip("/")
