"""Every option once: its flag, its type, its default and its words, shared by all commands."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from outdraft.errors import OptionError
from outdraft.speculation import METHODS, QUANTIZATIONS, RULES, Speculation


@dataclass(frozen=True, slots=True)
class Option:
    flag: str  # --like-this; the key in files and code is like_this
    help: str
    default: Any = None
    type: Callable[[str], Any] = str
    metavar: str | None = None
    repeats: bool = False
    is_switch: bool = False

    @property
    def key(self) -> str:
        return self.flag.removeprefix("--").replace("-", "_")


def add_options(parser: argparse.ArgumentParser, title: str, options: Iterable[Option]) -> None:
    group = parser.add_argument_group(title)
    for option in options:
        if option.is_switch:
            group.add_argument(option.flag, action="store_true", help=option.help)
            continue
        shown = "" if option.default is None else f" (default: {option.default})"
        group.add_argument(
            option.flag,
            type=option.type,
            default=option.default,
            metavar=option.metavar,
            action="append" if option.repeats else "store",
            help=option.help + shown,
        )


TARGET = (
    Option(
        "--target",
        "the model whose text is wanted: a catalog name, a hub id, a folder of safetensors "
        "or a .gguf file",
        default="smollm2-135m",
        metavar="MODEL",
    ),
    Option("--dtype", "auto, float32 or bfloat16", default="auto", metavar="TYPE"),
    Option(
        "--quantization",
        f"of the target's weights: {', '.join(QUANTIZATIONS)}",
        default="none",
        metavar="FORMAT",
    ),
    Option("--device", "cpu, cuda, cuda:1 …", default="cpu"),
    Option("--threads", "CPU threads", type=int, metavar="N"),
    Option("--max-model-len", "tokens a text may have, prompt included", type=int, metavar="N"),
    Option("--kv-cache-memory-bytes", "memory for the KV cache", type=int, metavar="BYTES"),
)

BATCH = (
    Option("--max-num-seqs", "texts written at once at most", default=16, type=int, metavar="N"),
    Option(
        "--max-num-batched-tokens",
        "tokens computed in one step at most",
        default=512,
        type=int,
        metavar="N",
    ),
    Option(
        "--no-enable-prefix-caching",
        "compute every prompt anew, also where its beginning is known",
        is_switch=True,
    ),
)

SERVER = (
    Option("--host", "address to serve at", default="127.0.0.1", metavar="ADDRESS"),
    Option("--port", "port to serve at; 0 takes a free one", default=8000, type=int, metavar="N"),
    Option(
        "--api-key",
        "ask for it everywhere but at /health (default: $OUTDRAFT_API_KEY, else no key)",
        metavar="KEY",
    ),
    Option(
        "--served-model-name",
        "what clients call the model; may be repeated (default: the target)",
        metavar="NAME",
        repeats=True,
    ),
    Option(
        "--max-num-waiting",
        "texts that may wait; more are answered 429",
        default=256,
        type=int,
        metavar="N",
    ),
    Option(
        "--drain-timeout",
        "seconds for open requests to finish after SIGTERM",
        default=30.0,
        type=float,
        metavar="S",
    ),
    Option(
        "--enable-per-request-metrics",
        "times and acceptance with every answer, not only where a request asks",
        is_switch=True,
    ),
    Option("--access-log", "a line on stderr for each request", is_switch=True),
)

_DEFAULTS = Speculation()

SPECULATION = (
    Option(
        "--method",
        f"who proposes: {', '.join(METHODS)} (default: draft_model with --draft, else off)",
    ),
    Option("--draft", "the draft model, named like a target; for eagle a head", metavar="MODEL"),
    Option("--k", "draft length: tokens proposed in one round", default=_DEFAULTS.k, type=int),
    Option("--rule", f"verification: {', '.join(RULES)} (typical is lossy)", default="coupled"),
    Option(
        "--draft-quantization",
        f"of the draft's weights: {', '.join(QUANTIZATIONS)}",
        default="none",
        metavar="FORMAT",
    ),
    Option(
        "--prompt-lookup-min",
        "n-gram: shortest match that counts",
        default=_DEFAULTS.prompt_lookup_min,
        type=int,
        metavar="N",
    ),
    Option(
        "--prompt-lookup-max",
        "n-gram: longest match looked for",
        default=_DEFAULTS.prompt_lookup_max,
        type=int,
        metavar="N",
    ),
)


def _token_bias(text: str) -> tuple[int, float]:
    token, separator, bias = text.partition("=")
    try:
        if not separator:
            raise ValueError
        return int(token), float(bias)
    except ValueError:
        raise OptionError(f"--logit-bias takes TOKEN_ID=BIAS, got {text!r}") from None


SAMPLING = (
    Option("--temperature", "0 always takes the likeliest token", default=0.0, type=float),
    Option("--seed", "the same seed writes the same text", type=int),
    Option("--max-tokens", "tokens to write at most", default=256, type=int, metavar="N"),
    Option("--min-tokens", "tokens to write at least", default=0, type=int, metavar="N"),
    Option("--top-k", "draw among so many of the likeliest tokens", default=0, type=int),
    Option("--top-p", "draw among the likeliest that hold this mass", default=1.0, type=float),
    Option("--min-p", "draw among those this likely beside the likeliest", default=0.0, type=float),
    Option("--repetition-penalty", "over prompt and output", default=1.0, type=float),
    Option("--presence-penalty", "over the output", default=0.0, type=float),
    Option("--frequency-penalty", "over the output", default=0.0, type=float),
    Option(
        "--logit-bias",
        "add BIAS to a token's logit; may be repeated",
        type=_token_bias,
        metavar="TOKEN_ID=BIAS",
        repeats=True,
    ),
    Option("--stop", "end the text before this string; may be repeated", repeats=True),
    Option("--ignore-eos", "write on behind the end-of-text token", is_switch=True),
)


def engine_settings(args: argparse.Namespace) -> dict[str, Any]:
    """The TARGET options, as `load_engine` calls them."""
    return {
        "dtype": args.dtype,
        "quantization": args.quantization,
        "device": args.device,
        "threads": args.threads,
        "max_model_len": args.max_model_len,
        "kv_cache_bytes": args.kv_cache_memory_bytes,
    }


def speculation_from(args: argparse.Namespace) -> Speculation:
    return Speculation(
        method=args.method or ("draft_model" if args.draft else "off"),
        k=args.k,
        draft=args.draft,
        quantization=args.draft_quantization,
        rule=args.rule,
        prompt_lookup_min=args.prompt_lookup_min,
        prompt_lookup_max=args.prompt_lookup_max,
    )
