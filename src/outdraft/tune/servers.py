"""Servers that somebody else starts, one for each arm: recognized, never started or stopped.

They may be on other hosts. Each is up all the time, and only one has requests at a time.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from outdraft.backends.backend import Backend, Capabilities, Container, Launch, Serving, Traffic
from outdraft.backends.lookup import backend_of_version
from outdraft.errors import BackendError, OptionError, OutdraftError
from outdraft.loadgen.endpoint import Endpoint
from outdraft.observe import RemoteServer
from outdraft.observe.server import Identity
from outdraft.speculation import OFF, Speculation
from outdraft.tune.arm import name_of
from outdraft.tune.engines import OnAnswer, RunningEngine, StartEngine
from outdraft.workload.training import training_digests

_ON = re.compile(r"(?P<method>\w+)(?::(?P<settings>.*?))?@(?P<url>https?://.+)")
_EXAMPLE = "eagle:draft=org/head,k=3@http://host:8001"


@dataclass(frozen=True, slots=True)
class ServedArm:
    speculation: Speculation  # that it was started with
    url: str

    @property
    def name(self) -> str:
        return name_of(self.speculation)


@dataclass(frozen=True, slots=True)
class RecognizedServers:
    """What answers there."""

    backend: Backend
    model: str  # as off's server calls it
    identities: Mapping[str, str]  # name of an arm → URL, engine, version, model
    notes: tuple[str, ...]  # what a user should know


def parse_servers(off: str | None, on: Sequence[str]) -> tuple[ServedArm, ...]:
    """Values of --off and --on, off first; () where neither is given."""
    if off is None and not on:
        return ()
    if off is None or not on:
        given, missing = ("--on", "--off URL") if off is None else ("--off", "--on SPEC@URL")
        raise OptionError(f"{given} needs {missing} too: a server for off and one for each arm")
    servers = (ServedArm(OFF, _address(off)), *map(_parse_on, on))
    for what, values in (("URL", [each.url for each in servers]),
                         ("arm", [each.name for each in servers])):  # fmt: skip
        if twice := [each for each in values if values.count(each) > 1]:
            raise OptionError(f"--off and --on name the {what} {twice[0]} twice")
    return servers


def _parse_on(text: str) -> ServedArm:
    matched = _ON.fullmatch(text)
    if matched is None:
        raise OptionError(f"--on {text!r} is no server of an arm; write e.g. {_EXAMPLE}")
    settings: dict[str, str | int] = {"method": matched["method"]}
    for each in filter(None, (matched["settings"] or "").split(",")):
        key, _, value = each.partition("=")
        settings[key] = int(value) if value.isdecimal() else value
    try:
        speculation = Speculation.from_mapping(settings)
    except OptionError as error:
        raise OptionError(f"--on {text}: {error}") from None
    if speculation.is_off:
        raise OptionError(f"--on {text}: name the server without speculation with --off")
    if not {"k", "num_speculative_tokens"} & settings.keys():
        raise OptionError(f"--on {text}: say which draft length it was started with, e.g. k=3")
    return ServedArm(speculation, _address(matched["url"]))


def _address(url: str) -> str:
    return Endpoint(url).server.url


def find_servers(
    servers: Sequence[ServedArm], api_key: str | None = None, *, forgets: bool = True
) -> RecognizedServers:
    """Asks every server what it is. OptionError where they cannot be compared."""
    asked = {each: RemoteServer(each.url, api_key).identify() for each in servers}
    off, first = next(iter(asked.items()))
    if first.engine is None:
        raise OptionError(
            f"{off.url} does not say which engine it is (its /metrics page would); `outdraft "
            "compare` measures any two servers"
        )
    notes = [
        "the servers were started by others: what else runs beside them, and whether they differ "
        "in more than speculation, is not known here"
    ]
    for server, identity in asked.items():
        if identity.engine != first.engine:
            both = f"{server.url} is {identity}, {off.url} is {first}"
            raise OptionError(f"{both}: arms are compared on one engine")
        notes += _differences(server, identity, first)
    backend = Attached(backend_of_version(first.engine, first.version))
    if forgets:
        _check_forgetting(servers, backend.capabilities().forget_paths, api_key)
    identities = {
        server.name: f"{server.url}, {each}, {each.model}" for server, each in asked.items()
    }
    return RecognizedServers(backend, first.model or first.engine, identities, tuple(notes))


def _differences(server: ServedArm, seen: Identity, off: Identity) -> list[str]:
    pairs = (("version", seen.version, off.version), ("model", seen.model, off.model))
    return [
        f"{server.name} has {what} {own or 'unknown'}, off {other or 'unknown'}: the verdict is "
        "about both differences"
        for what, own, other in pairs
        if own != other
    ]


def _check_forgetting(
    servers: Iterable[ServedArm], paths: Mapping[str, str], api_key: str | None
) -> None:
    """OptionError for a server that remembers answers and cannot be made to forget them."""
    for server in servers:
        path = paths.get(server.speculation.method)
        if path is None:
            continue
        try:
            if not path:
                raise BackendError("only a new start makes it forget")
            RemoteServer(server.url, api_key).forget(path)
        except BackendError as error:
            raise OptionError(
                f"{server.name} remembers answers ({error}); --keep-memory measures it with them"
            ) from None


def known_drafts(drafts: Iterable[str]) -> tuple[list[str], list[str]]:
    """Those whose training prompts can be looked for from here, and notes on the others."""
    known, notes = [], []
    for draft in drafts:
        try:
            training_digests(draft)
            known.append(draft)
        except OutdraftError:
            notes.append(
                f"{draft} cannot be read here: prompts that it was trained on are not left out"
            )
    return known, notes


class Attached:
    """A backend for servers that are up: nothing of them can be changed."""

    def __init__(self, engine: Backend) -> None:
        self._engine = engine
        self.name, self.title = engine.name, engine.title
        self.installation = engine.installation

    def capabilities(self) -> Capabilities:
        return replace(
            self._engine.capabilities(),
            shares_process=False,
            needs_local_files=False,
            schedule_methods=frozenset(),
            default_num_seqs=None,
            idle_path="",
            sleep=None,
        )

    def launch(self, serving: Serving, speculation: Speculation, port: int) -> Launch:
        raise BackendError(f"{self.title} is not started here")

    def warnings(
        self, serving: Serving, speculation: Speculation, traffic: Traffic
    ) -> Iterable[str]:
        return ()

    def container(self) -> Container:
        return self._engine.container()


class AttachedProcess:
    """A server that is not ours: to `stop` it changes nothing."""

    def __init__(self, url: str, api_key: str | None = None) -> None:
        self.url = url
        self._server = RemoteServer(url, api_key)

    def died(self) -> str | None:
        return None if self._server.is_ready() else f"nothing answers at {self.url} any more"

    def processes(self) -> list[int]:
        return []

    def stop(self) -> None:
        pass


def server_finder(
    servers: Iterable[ServedArm],
    api_key: str | None = None,
    *,
    stop_at_eos: bool = False,
    on_answer: OnAnswer = lambda done, total: None,
) -> StartEngine:
    """Has the server of an arm where others would start one."""
    urls = {each.name: each.url for each in servers}

    def attach(speculation: Speculation, name: str) -> RunningEngine:
        process = AttachedProcess(urls[name_of(speculation)], api_key)
        return RunningEngine(process, stop_at_eos=stop_at_eos, api_key=api_key, on_answer=on_answer)

    return attach
