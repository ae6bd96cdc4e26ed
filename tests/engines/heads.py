"""The outside of an EAGLE-3 head: enough for an engine's checks, not for a start."""

from __future__ import annotations

import json
from pathlib import Path


def write_head(folder: Path, target: Path) -> Path:
    """A config.json as heads have it, in the target's sizes."""
    config = json.loads((target / "config.json").read_text(encoding="utf-8"))
    config |= {
        "architectures": ["LlamaForCausalLMEagle3"],
        "num_hidden_layers": 1,
        "draft_vocab_size": config["vocab_size"],
        "target_hidden_size": config["hidden_size"],
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder
