"""A Speculation as a configuration to paste: for an engine, in a form, with the reasons.

config = engine_config("vllm", speculation, Serving("meta-llama/Llama-3.1-8B-Instruct"))
text = write_form(config, "compose")

Names are imported when they are first used: the options of `outdraft emit` are here too.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outdraft.emit.config import EngineConfig, engine_config, nearest_config, needs_folder
    from outdraft.emit.forms import write_form
    from outdraft.emit.options import FORMS

_HOMES = {
    "FORMS": "options",
    "EngineConfig": "config",
    "engine_config": "config",
    "nearest_config": "config",
    "needs_folder": "config",
    "write_form": "forms",
}

__all__ = ["FORMS", "EngineConfig", "engine_config", "nearest_config", "needs_folder", "write_form"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'outdraft.emit' has no attribute {name!r}")
    return getattr(import_module(f"outdraft.emit.{_HOMES[name]}"), name)
