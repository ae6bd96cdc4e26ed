"""outdraft: decide on, tune and run speculative decoding, with evidence.

    from outdraft import SamplingParams, Speculation, load_engine

    engine = load_engine("smollm2-135m", Speculation(method="ngram", k=5))
    [generation] = engine.generate(["Once upon a time"], SamplingParams(max_tokens=64))

Names are imported when they are first used: `import outdraft` does not load torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from outdraft.version import __version__ as __version__

if TYPE_CHECKING:
    from outdraft.engine.assemble import load_engine as load_engine
    from outdraft.engine.engine import Engine as Engine
    from outdraft.engine.outputs import Generation as Generation
    from outdraft.engine.outputs import Update as Update
    from outdraft.engine.sequence import SamplingParams as SamplingParams
    from outdraft.errors import OutdraftError as OutdraftError
    from outdraft.speculation import Speculation as Speculation


_HOMES = {
    "Engine": "outdraft.engine.engine",
    "Generation": "outdraft.engine.outputs",
    "OutdraftError": "outdraft.errors",
    "SamplingParams": "outdraft.engine.sequence",
    "Speculation": "outdraft.speculation",
    "Update": "outdraft.engine.outputs",
    "load_engine": "outdraft.engine.assemble",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'outdraft' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
