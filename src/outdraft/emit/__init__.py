"""A Speculation as a configuration to paste: for an engine, in a form, with the reasons.

config = engine_config("vllm", speculation, Serving("meta-llama/Llama-3.1-8B-Instruct"))
text = write_form(config, "compose")
"""

from outdraft.emit.config import ENGINES, EngineConfig, engine_config, nearest_config
from outdraft.emit.drafts import needs_folder
from outdraft.emit.forms import FORMS, write_form

__all__ = [
    "ENGINES",
    "FORMS",
    "EngineConfig",
    "engine_config",
    "nearest_config",
    "needs_folder",
    "write_form",
]
