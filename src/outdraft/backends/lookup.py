"""An engine's name → its backend."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from typing import Any

from outdraft.backends.backend import Backend
from outdraft.backends.installation import Installation
from outdraft.errors import BackendError, OptionError, unknown_choice

# Class, its module, and the module that knows its installations (`detect` and `TABLE`). Imported
# when asked for: nobody pays for an engine that is not in play.
_HOMES = {
    "outdraft": ("Embedded", "embedded", "embedded"),
    "vllm": ("Vllm", "vllm.backend", "vllm.installation"),
    "sglang": ("Sglang", "sglang.backend", "sglang.installation"),
    "llamacpp": ("LlamaCpp", "llamacpp.backend", "llamacpp.installation"),
}
ENGINES = tuple(_HOMES)


def backend_named(name: str) -> Backend:
    """For the engine installed here; BackendError with the install line where it is not."""
    make, home = _modules(name)
    return make(home.detect())


def backend_elsewhere(name: str, version: str | None = None) -> Backend:
    """For commands that another machine runs: of this version, of the one installed here, or of
    the newest known."""
    make, home = _modules(name)
    if version is None:
        with suppress(BackendError):
            return make(replace(home.detect(), command=tuple(home.TABLE.command), is_here=False))
    return make(home.TABLE.installation(version))


def backend_of_version(name: str, version: str | None) -> Backend:
    """For a server that is up somewhere: of the newest known version where its own is not known.
    What is installed here does not matter."""
    make, home = _modules(name)
    with suppress(OptionError):
        return make(home.TABLE.installation(version))
    return make(home.TABLE.installation())


def _modules(name: str) -> tuple[Callable[[Installation], Backend], Any]:
    if name not in _HOMES:
        raise unknown_choice("engine", name, ENGINES)
    kind, module, home = _HOMES[name]
    make = getattr(import_module(f"outdraft.backends.{module}"), kind)
    return make, import_module(f"outdraft.backends.{home}")
