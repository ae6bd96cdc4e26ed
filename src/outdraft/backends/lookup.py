"""An engine's name → its backend."""

from __future__ import annotations

from importlib import import_module

from outdraft.backends.backend import Backend
from outdraft.errors import unknown_choice

# Imported when asked for: nobody pays for an engine that is not in play.
_HOMES = {
    "outdraft": ("outdraft.backends.embedded", "Embedded"),
    "vllm": ("outdraft.backends.vllm", "Vllm"),
    "sglang": ("outdraft.backends.sglang", "Sglang"),
    "llamacpp": ("outdraft.backends.llamacpp", "LlamaCpp"),
}
ENGINES = tuple(_HOMES)


def backend_named(name: str) -> Backend:
    if name not in _HOMES:
        raise unknown_choice("engine", name, ENGINES)
    module, kind = _HOMES[name]
    backend: Backend = getattr(import_module(module), kind)()
    return backend
