"""What a tokenizer is made of, wherever it came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class TokenizerParts:
    """What a tokenizer is made of, as plain data: this is what the cache keeps."""

    tokenizer_json: str
    adds_bos: bool | None  # None: whatever tokenizer.json's post-processor does
    eos_ids: tuple[int, ...]
    chat_template: str | None = None
    special_tokens: Mapping[str, str] = field(default_factory=dict)  # bos_token → its text
