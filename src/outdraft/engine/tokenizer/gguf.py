"""The tokenizer inside a GGUF file.

A GGUF file lists tokens, their kinds and merges, and names the rule that splits text before the
merges apply (`tokenizer.ggml.pre`). For the byte-level vocabularies whose rule we know, that is
everything a `tokenizers` object needs. Anything else (sentencepiece, other rules) goes through
transformers' converter. Either way the result is cached as one JSON file, keyed by the header.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
)

from outdraft.catalog import default_cache_dir
from outdraft.engine.tokenizer.parts import TokenizerParts
from outdraft.errors import CorruptFileError, ModelError
from outdraft.modelspec.gguf_header import GgufHeader, read_gguf_header

_FORMAT = 1  # of the cache; raise it when conversion changes
_ARRAYS = tuple(f"tokenizer.ggml.{name}" for name in ("tokens", "merges", "token_type"))
_CONTROL, _USER_DEFINED, _UNUSED = 3, 4, 5
_SPECIAL_IDS = {
    "bos_token": "tokenizer.ggml.bos_token_id",
    "eos_token": "tokenizer.ggml.eos_token_id",
    "unk_token": "tokenizer.ggml.unknown_token_id",
    "pad_token": "tokenizer.ggml.padding_token_id",
}
# Control tokens that end a turn or a text whichever of them the file calls EOS
_END_TEXTS = frozenset({"<|endoftext|>", "<|im_end|>", "<|eot_id|>", "<|end_of_text|>", "</s>"})


@dataclass(frozen=True)
class _SplitRule:
    regex: str | None = None  # None: GPT-2's own, built into ByteLevel
    single_digits: bool = False
    nfc: bool = False
    ignore_merges: bool = False  # a word that is a token is taken whole
    adds_bos: bool = False  # when the file does not say


_LLAMA3 = _SplitRule(
    regex=r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ignore_merges=True,
    adds_bos=True,
)
_QWEN2 = _SplitRule(
    regex=r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    nfc=True,
)
_TEKKEN = _SplitRule(
    regex=r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ignore_merges=True,
    adds_bos=True,
)
_RULES = {
    "gpt-2": _SplitRule(),
    "smollm": _SplitRule(single_digits=True),
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "qwen2": _QWEN2,
    "tekken": _TEKKEN,
}


def gguf_parts(path: Path) -> TokenizerParts:
    """The tokenizer of a GGUF file, from the cache when it was converted before."""
    file = default_cache_dir() / "tokenizers" / f"{_key(path)}.json"
    kept = _read_cached(file)
    if kept is not None:
        return kept
    parts = convert(path)
    with suppress(OSError):  # a cache that cannot be written costs time, not the answer
        _write_cached(file, parts)
    return parts


def convert(path: Path) -> TokenizerParts:
    """Read the tokenizer out of the file, without the cache."""
    header = read_gguf_header(path, arrays=_ARRAYS)
    tokens = _texts(header, "tokens")
    if not tokens:
        raise ModelError(f"{path} holds no tokenizer (no tokenizer.ggml.tokens)")
    model = header.values.get("tokenizer.ggml.model")
    rule = _RULES.get(str(header.values.get("tokenizer.ggml.pre", "")))
    if model == "gpt2" and rule is not None:
        try:
            text = _byte_level(header, rule).to_str()
        except Exception as error:  # tokenizers raises bare Exception for merges that do not fit
            raise CorruptFileError(f"{path}: the tokenizer cannot be built ({error})") from error
    else:
        text = _through_transformers(path)
    default_bos = rule.adds_bos if rule is not None else model == "llama"
    template = header.values.get("tokenizer.chat_template")
    return TokenizerParts(
        tokenizer_json=text,
        adds_bos=bool(header.values.get("tokenizer.ggml.add_bos_token", default_bos)),
        eos_ids=_eos_ids(header, tokens),
        chat_template=template if isinstance(template, str) else None,
        special_tokens={
            name: tokens[index]
            for name, key in _SPECIAL_IDS.items()
            if isinstance(index := header.values.get(key), int) and 0 <= index < len(tokens)
        },
    )


def _byte_level(header: GgufHeader, rule: _SplitRule) -> Tokenizer:
    tokens, kinds = _texts(header, "tokens"), _kinds(header)
    # The converter fills a padded embedding with [PAD1234]: rows no text ever reaches.
    vocab = {
        text: i
        for i, (text, kind) in enumerate(zip(tokens, kinds, strict=True))
        if kind != _UNUSED or text != f"[PAD{i}]"
    }
    merges = [(left, right) for left, right in (m.split(" ") for m in _texts(header, "merges"))]
    bpe = models.BPE(vocab=vocab, merges=merges, ignore_merges=rule.ignore_merges)
    tokenizer = Tokenizer(bpe)
    steps: list[pre_tokenizers.PreTokenizer] = []
    if rule.single_digits:
        steps.append(pre_tokenizers.Digits(individual_digits=True))
    if rule.regex is not None:
        steps.append(pre_tokenizers.Split(Regex(rule.regex), behavior="isolated"))
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=rule.regex is None))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.ByteLevel()
    if rule.nfc:
        tokenizer.normalizer = normalizers.NFC()
    # Both kinds are matched whole in any text; only control tokens are left out of what is shown.
    tokenizer.add_special_tokens(_added(tokens, kinds, _CONTROL))
    tokenizer.add_tokens(_added(tokens, kinds, _USER_DEFINED))
    return tokenizer


def _added(tokens: list[str], kinds: list[int], wanted: int) -> list[AddedToken]:
    return [
        AddedToken(text, normalized=False, special=wanted == _CONTROL)
        for text, kind in zip(tokens, kinds, strict=True)
        if kind == wanted
    ]


def _through_transformers(path: Path) -> str:
    from transformers import AutoTokenizer

    try:
        loaded = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
        return str(loaded.backend_tokenizer.to_str())
    except Exception as error:  # any of a dozen kinds, by what the file lacks
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ModelError(f"{path}: transformers cannot read its tokenizer ({reason})") from error


def _eos_ids(header: GgufHeader, tokens: list[str]) -> tuple[int, ...]:
    """The file's EOS first, then its end of turn, then control tokens that plainly end a text."""
    named = [header.values.get(f"tokenizer.ggml.{kind}_token_id") for kind in ("eos", "eot", "eom")]
    ids = [index for index in named if isinstance(index, int)]
    ends = (i for i, kind in enumerate(_kinds(header)) if kind == _CONTROL)
    ids.extend(i for i in ends if tokens[i] in _END_TEXTS)
    return tuple(dict.fromkeys(ids))


def _texts(header: GgufHeader, name: str) -> list[str]:
    return cast("list[str]", header.values.get(f"tokenizer.ggml.{name}", []))


def _kinds(header: GgufHeader) -> list[int]:
    normal = [1] * len(_texts(header, "tokens"))
    return cast("list[int]", header.values.get("tokenizer.ggml.token_type", normal))


def _key(path: Path) -> str:
    """By the whole header, so that a copied or renamed file is known again, an edited one not."""
    header = read_gguf_header(path)
    end = min((tensor.offset for tensor in header.tensors.values()), default=0)
    with path.open("rb") as file:
        digest = hashlib.sha256(file.read(end))
    digest.update(f"{path.stat().st_size} {_FORMAT}".encode())
    return digest.hexdigest()[:32]


def _read_cached(file: Path) -> TokenizerParts | None:
    try:
        contents = json.loads(file.read_text(encoding="utf-8"))
        return TokenizerParts(**{**contents, "eos_ids": tuple(contents["eos_ids"])})
    except (OSError, ValueError, KeyError, TypeError):
        return None  # not there, or not whole: it is made again


def _write_cached(file: Path, parts: TokenizerParts) -> None:
    """Whole or not at all: a second process never sees half a file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", dir=file.parent, prefix=file.stem, delete=False
    ) as temporary:
        json.dump(asdict(parts), temporary)
        temporary.flush()
        os.fsync(temporary.fileno())
    Path(temporary.name).replace(file)
