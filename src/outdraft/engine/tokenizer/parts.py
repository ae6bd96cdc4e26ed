"""What a tokenizer is made of, and transformers as the last resort to get it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outdraft.errors import ModelError


@dataclass(frozen=True)
class TokenizerParts:
    """Plain data, which is also what the cache keeps."""

    tokenizer_json: str
    adds_bos: bool | None  # None: whatever tokenizer.json's post-processor does
    eos_ids: tuple[int, ...]
    chat_template: str | None = None
    special_tokens: Mapping[str, str] = field(default_factory=dict)  # bos_token → its text


def convert_with_transformers(folder: Path, problem: str, **options: Any) -> tuple[str, Any]:
    """tokenizer.json made by transformers, and its tokenizer. `problem` begins the error."""
    from transformers import AutoTokenizer  # takes seconds to import and is rarely needed

    try:
        loaded = AutoTokenizer.from_pretrained(folder, **options)
        return str(loaded.backend_tokenizer.to_str()), loaded
    except Exception as error:  # of many kinds, depending on what is missing
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ModelError(f"{problem} ({reason})") from error
