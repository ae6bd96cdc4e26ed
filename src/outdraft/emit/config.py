"""EngineConfig: what an engine is started with, as its backend says; all forms are made of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import PurePosixPath

from outdraft.backends.backend import Backend, Container, Launch, Serving, Traffic
from outdraft.backends.checks import preflight
from outdraft.backends.lookup import backend_elsewhere
from outdraft.catalog import SHIPPED_DRAFTS, find_entry, local_path
from outdraft.emit.nearest import nearest
from outdraft.errors import OptionError
from outdraft.modelspec.head import is_packed
from outdraft.speculation import Speculation


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig(Launch):
    engine: str
    title: str  # the engine's name as its makers write it
    version: str
    summary: str  # of the speculation, in words
    port: int
    container: Container
    gpus: int  # of each host; 0 on a CPU
    hosts: int

    @property
    def local_models(self) -> tuple[str, ...]:
        """Those that are named by an absolute path: a container sees them at the same one."""
        return tuple(name for name in self.models if PurePosixPath(name).is_absolute())

    def with_values(self, values: Mapping[str, str]) -> EngineConfig:
        """The same flags with other values; those that are not there stay away."""
        changed = (
            replace(flag, values=(values[flag.name],)) if flag.name in values else flag
            for flag in self.flags
        )
        return replace(self, flags=tuple(changed))


def engine_config(
    engine: str,
    speculation: Speculation,
    serving: Serving,
    *,
    version: str | None = None,
    hosts: int = 1,
    port: int = 8000,
) -> EngineConfig:
    """`version` None: the one installed here, else the newest known.

    With several hosts `serving.tensor_parallel_size` is the number of GPUs of each.
    """
    return _make_config(
        backend_elsewhere(engine, version), speculation, replace(serving, hosts=hosts), port
    )


def nearest_config(
    engine: str,
    speculation: Speculation,
    serving: Serving,
    *,
    k: int,
    notes: tuple[str, ...] = (),
    version: str | None = None,
) -> EngineConfig:
    """The configuration of what the engine can run that is nearest, with what differs as notes.

    `k`: the draft length where it has no schedule, 0 for off. `notes`: more of them.
    """
    backend = backend_elsewhere(engine, version)
    meant, differences = nearest(backend, speculation, k=k)
    config = _make_config(backend, meant, serving, port=8000)
    return replace(config, notes=(*notes, *differences, *config.notes))


def needs_folder(engine: str, draft: str) -> bool:
    """Whether the draft has to be made an ordinary folder first, by `outdraft export`: a .gguf
    file, or a head stored in blocks."""
    path = local_path(draft)
    is_folder = path.suffix != ".gguf" and not is_packed(path)
    return not is_folder and backend_elsewhere(engine).capabilities().needs_folders


def _make_config(
    backend: Backend, speculation: Speculation, serving: Serving, port: int
) -> EngineConfig:
    for name in ("hosts", "tensor_parallel_size"):
        value = getattr(serving, name)
        if value < 1:
            raise OptionError(f"{name} must be at least 1, got {value}")
    known = SHIPPED_DRAFTS if backend.capabilities().has_shipped_drafts else ()
    if speculation.draft is not None and speculation.draft not in known:
        speculation = replace(speculation, draft=_absolute(speculation.draft))
    serving = replace(serving, target=_absolute(serving.target))
    launch = backend.launch(serving, speculation, port)
    _check_words(launch.argv)
    traffic = Traffic(concurrency=serving.max_num_seqs or 1)  # as many as it takes at a time
    warnings = preflight(backend, serving, speculation, traffic)
    launch = replace(launch, notes=tuple(dict.fromkeys((*launch.notes, *warnings))))
    container = backend.container()
    return EngineConfig(
        **{field.name: getattr(launch, field.name) for field in fields(launch)},
        engine=backend.name,
        title=backend.title,
        version=backend.installation.version,
        summary=speculation.describe(),
        port=port,
        container=container,
        gpus=serving.tensor_parallel_size if container.uses_gpus else 0,
        hosts=serving.hosts,
    )


def _check_words(words: Iterable[str]) -> None:
    """A file of text cannot hold every name."""
    for word in words:
        if bad := re.search("[\0\ud800-\udfff]", word):
            raise OptionError(
                f"{word!r} cannot stand in a file: it holds the character U+{ord(bad[0]):04X}; "
                "rename it"
            )


def _absolute(name: str) -> str:
    """A folder or file that is here, by its whole path: a container mounts it there."""
    if find_entry(name) is not None:
        return name
    path = local_path(name)
    return str(path.resolve()) if path.exists() or name.startswith(("./", "../", "~")) else name
