"""The tokenizer inside a GGUF file.

A GGUF file lists tokens, their kinds and merges, and names the rule that splits text before the
merges apply (`tokenizer.ggml.pre`). For the byte-level vocabularies whose rule we know, that is
everything a `tokenizers` object needs. Anything else (sentencepiece, other rules) goes through
transformers' converter. Either way the result is cached as one JSON file, keyed by the header.
"""

import hashlib
import json
import tomllib
from contextlib import suppress
from dataclasses import asdict
from importlib.resources import files as resources
from pathlib import Path
from typing import Any, cast

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from outdraft.catalog import default_cache_dir
from outdraft.engine.tokenizer.parts import TokenizerParts, convert_with_transformers
from outdraft.errors import CorruptFileError, ModelError, OutdraftError
from outdraft.modelspec.gguf_header import GgufHeader, read_gguf_header
from outdraft.modelspec.vocabulary import is_padding
from outdraft.whole_file import write_json

_FORMAT = 1  # of the cache; raise it when conversion changes
_ARRAYS = tuple(f"tokenizer.ggml.{name}" for name in ("tokens", "merges", "token_type"))
_CONTROL, _USER_DEFINED = 3, 4
_NAMES = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
# Control tokens that end a turn or a text, whichever of them the file names as EOS
_END_TEXTS = frozenset({"<|endoftext|>", "<|im_end|>", "<|eot_id|>", "<|end_of_text|>", "</s>"})
_RULES = tomllib.loads(
    resources("outdraft.engine.tokenizer").joinpath("split_rules.toml").read_text("utf-8")
)


def gguf_parts(path: Path) -> TokenizerParts:
    """The tokenizer of a GGUF file, from the cache when it was converted before."""
    file = default_cache_dir() / "tokenizers" / f"{_key(path)}.json"
    cached = _read_cached(file)
    if cached is not None:
        return cached
    parts = convert(path)
    with suppress(OutdraftError):  # without the cache it only takes longer
        write_json(file, asdict(parts))
    return parts


def convert(path: Path) -> TokenizerParts:
    """Read the tokenizer out of the file, without the cache."""
    header = read_gguf_header(path, arrays=_ARRAYS)
    tokens = _texts(header, "tokens")
    if not tokens:
        raise ModelError(f"{path} holds no tokenizer (no tokenizer.ggml.tokens)")
    model = header.values.get("tokenizer.ggml.model")
    rule = _RULES.get(str(header.values.get("tokenizer.ggml.pre", "")))
    rule = _RULES[rule["same_as"]] if rule is not None and "same_as" in rule else rule
    if model == "gpt2" and rule is not None:
        try:
            text = _byte_level(header, rule).to_str()
        except Exception as error:  # tokenizers raises bare Exception for merges that do not fit
            raise CorruptFileError(f"{path}: the tokenizer cannot be built ({error})") from error
    else:
        problem = f"{path}: transformers cannot read its tokenizer"
        text, _ = convert_with_transformers(path.parent, problem, gguf_file=path.name)
    default_bos = rule.get("adds_bos", False) if rule is not None else model == "llama"
    template = header.values.get("tokenizer.chat_template")
    return TokenizerParts(
        tokenizer_json=text,
        adds_bos=bool(header.values.get("tokenizer.ggml.add_bos_token", default_bos)),
        eos_ids=_eos_ids(header, tokens),
        chat_template=template if isinstance(template, str) else None,
        special_tokens={
            name: tokens[index]
            for name, kind in _NAMES.items()
            if isinstance(index := header.values.get(f"tokenizer.ggml.{kind}_token_id"), int)
            and 0 <= index < len(tokens)
        },
    )


def _byte_level(header: GgufHeader, rule: dict[str, Any]) -> Tokenizer:
    tokens, kinds = _texts(header, "tokens"), _kinds(header)
    vocab = {
        text: i
        for i, (text, kind) in enumerate(zip(tokens, kinds, strict=True))
        if not is_padding(i, text, kind)
    }
    merges = [(left, right) for left, right in (m.split(" ") for m in _texts(header, "merges"))]
    tokenizer = Tokenizer(
        models.BPE(vocab=vocab, merges=merges, ignore_merges=rule.get("ignore_merges", False))
    )
    regex = rule.get("regex")
    steps: list[pre_tokenizers.PreTokenizer] = []
    if rule.get("single_digits"):
        steps.append(pre_tokenizers.Digits(individual_digits=True))
    if regex is not None:
        steps.append(pre_tokenizers.Split(Regex(regex), behavior="isolated"))
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=regex is None))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.ByteLevel()
    if rule.get("nfc"):
        tokenizer.normalizer = normalizers.NFC()
    # Both kinds are matched whole in any text; only control tokens are left out when decoding.
    for kind, add in (
        (_CONTROL, tokenizer.add_special_tokens),
        (_USER_DEFINED, tokenizer.add_tokens),
    ):
        of_kind = (text for text, each in zip(tokens, kinds, strict=True) if each == kind)
        special = kind == _CONTROL
        add([AddedToken(text, normalized=False, special=special) for text in of_kind])
    return tokenizer


def _eos_ids(header: GgufHeader, tokens: list[str]) -> tuple[int, ...]:
    """The file's EOS first, then its end of turn, then control tokens known to end a text."""
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
    """A hash of the header: a copied or renamed file has the same, an edited one has another."""
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
        return None  # missing or damaged: it is written again
