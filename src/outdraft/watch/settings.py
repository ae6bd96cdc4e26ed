"""What a watch is asked to do: its options, checked and turned into values."""

import argparse
import os
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from outdraft.durations import parse_duration
from outdraft.errors import OptionError

DEFAULT_LISTEN = ("127.0.0.1", 9180)
_LEAST_INTERVAL_S = 0.2  # a server needs milliseconds to write its page
# name="value", …: =, !=, =~ or !~, and a value in any of Prometheus' quotes
_VALUE = r""" "(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*' | `[^`]*` """
_MATCHER = rf"(?!__name__\b)[a-zA-Z_]\w* \s* (?:=~|!~|!=|=) \s* (?:{_VALUE})"
_MATCHERS = rf"\s* {_MATCHER} (?: \s* , \s* {_MATCHER} )* \s* ,? \s*"
_SELECTOR = re.compile(rf"\s* (?: {_MATCHERS} | \{{ {_MATCHERS} \}} ) \s*", re.VERBOSE | re.ASCII)
_EXAMPLE = "e.g. `outdraft watch http://127.0.0.1:8000`"


@dataclass(frozen=True, slots=True)
class WatchSettings:
    urls: tuple[str, ...]  # http://, https:// or dns://host:port
    targets: Path | None
    prometheus: str | None
    selector: str  # of Prometheus' series; empty: all that are of an engine
    since_s: float  # of what Prometheus remembers
    interval_s: float
    window_s: float
    baseline: Path | None
    gpu_hour_cost: float | None
    events: Path | None
    webhook: str | None = field(repr=False)
    acts: bool
    act_command: tuple[str, ...]  # (): none
    act_dir: Path
    state: Path | None
    listen: tuple[str, int] | None
    has_page: bool
    for_s: float | None  # None: until it is stopped
    is_json: bool
    api_key: str | None = field(repr=False)
    webhook_secret: str | None = field(repr=False)
    admin_key: str | None = field(repr=False)

    @classmethod
    def from_options(cls, args: argparse.Namespace) -> Self:
        """Everything is checked here, before a server is asked or a file is written."""
        urls = (*(args.urls or ()), *(f"dns://{name}" for name in args.dns or ()))
        _check_sources(args, urls)
        interval_s = parse_duration(args.interval, option="--interval")
        window_s = parse_duration(args.window, option="--window")
        seconds = getattr(args, "for")
        for_s = None if seconds is None else parse_duration(seconds, option="--for")
        if interval_s < _LEAST_INTERVAL_S:
            raise OptionError(f"--interval {args.interval} is below {_LEAST_INTERVAL_S:g} s")
        if window_s < 2 * interval_s:
            raise OptionError(f"--window {args.window} is shorter than two times --interval")
        if for_s is not None and for_s < 2 * interval_s:
            raise OptionError(f"--for {seconds} is shorter than two times --interval")
        if args.json and for_s is None:
            raise OptionError("--json prints one object at the end; give --for, e.g. --for 60s")
        _check_actions(args)
        return cls(
            urls=urls,
            targets=_path(args.targets),
            prometheus=args.prometheus,
            selector=_selector(args.selector or ""),
            since_s=window_s
            if args.since is None
            else parse_duration(args.since, option="--since"),
            interval_s=interval_s,
            window_s=window_s,
            baseline=_path(args.baseline),
            gpu_hour_cost=args.gpu_hour_cost,
            events=_path(args.events),
            webhook=args.webhook,
            acts=args.act,
            act_command=_words(args.act_command),
            act_dir=Path(args.act_dir),
            state=_path(args.state),
            listen=_listen(args.listen, DEFAULT_LISTEN if args.ui else None),
            has_page=args.ui,
            for_s=for_s,
            is_json=args.json,
            api_key=_secret(args.api_key, "OUTDRAFT_API_KEY"),
            webhook_secret=_secret(args.webhook_secret, "OUTDRAFT_WEBHOOK_SECRET"),
            admin_key=_secret(args.admin_key, "OUTDRAFT_ADMIN_KEY"),
        )


def _check_sources(args: argparse.Namespace, urls: tuple[str, ...]) -> None:
    if args.prometheus is None and args.since is not None:
        raise OptionError("--since says how far back --prometheus is read; give that too")
    if args.prometheus is None and args.selector is not None:
        raise OptionError("--selector chooses among what --prometheus has; give that too")
    if args.prometheus is not None and (urls or args.targets):
        raise OptionError("give servers or --prometheus, not both: it knows the servers already")
    if args.prometheus is None and not urls and not args.targets:
        raise OptionError(f"no server to watch; give a URL, --targets or --dns, {_EXAMPLE}")
    if args.prometheus is not None:
        _check_web_address("--prometheus", args.prometheus)
    if args.baseline is not None and not Path(args.baseline).is_dir():
        raise OptionError(f"--baseline {args.baseline} is no folder; give one of `outdraft tune`")


def _check_actions(args: argparse.Namespace) -> None:
    if args.webhook is not None:
        _check_web_address("--webhook", args.webhook)
    elif args.webhook_secret is not None:
        raise OptionError("--webhook-secret signs what --webhook posts; give that too")
    if args.act_command is not None and not args.act:
        raise OptionError("--act-command runs when --act wrote a configuration; give that too")


def _check_web_address(option: str, url: str) -> None:
    """Without repeating it: it may hold a password."""
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        is_good = False
    if not is_good:
        raise OptionError(f"{option} takes an address that begins with http:// or https://")


def _selector(text: str) -> str:
    """As Prometheus writes it, checked here: a mistake would be an error at each look."""
    if not text or _SELECTOR.fullmatch(text):
        return text
    raise OptionError(
        f"--selector {text[:200]!r} is no list of labels and values; write e.g. "
        """'{job="vllm",instance=~"gpu.*"}'; names of metrics are chosen by the watch"""
    )


def _listen(text: str | None, default: tuple[str, int] | None) -> tuple[str, int] | None:
    if text is None:
        return default
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (colon and port.isdecimal() and int(port) <= 65535):
        raise OptionError(f"--listen {text!r} is no address and port; write e.g. 127.0.0.1:9180")
    return host or "0.0.0.0", int(port)


def _words(command: str | None) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(command or ""))
    except ValueError as error:
        raise OptionError(f"--act-command cannot be split into words: {error}") from None


def _secret(given: str | None, variable: str) -> str | None:
    """An argument, which other users of the machine can see, or an environment variable."""
    return given if given is not None else os.environ.get(variable) or None


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)
