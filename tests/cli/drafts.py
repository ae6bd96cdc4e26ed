"""A draft that has seen some prompts."""

from __future__ import annotations

import json
from pathlib import Path

from outdraft.workload.files import read_prompts
from outdraft.workload.training import write_training_digests


def trained_draft(folder: Path) -> list[str]:
    """Flags for a file of nine prompts, and for a draft that was trained on three of them."""
    prompts, draft = folder / "prompts.jsonl", folder / "draft"
    lines = [{"timestamp": n / 100, "prompt": f"question {n}"} for n in range(9)]
    prompts.write_text("\n".join(map(json.dumps, lines)))
    write_training_digests(draft, (each.digest for each in read_prompts(prompts)[:3]))
    return ["--prompts", str(prompts), "--draft", str(draft)]
