"""`outdraft emit`: a speculation as a configuration that an engine accepts."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import Any

from outdraft.cli.options import Option, add_options
from outdraft.errors import OptionError
from outdraft.speculation import Speculation

_EXAMPLES = """\
examples:
  outdraft emit --speculation tune-out/outdraft.toml --engine vllm --target ./my-model --form k8s
  outdraft emit --speculation mine.toml --engine sglang --target ./my-model --form compose
  outdraft emit --speculation mine.json --engine vllm --target meta-llama/Llama-3.1-70B-Instruct \\
    --tensor-parallel-size 8 --hosts 2 --form k8s --out vllm.yaml
  echo '{"method": "ngram", "num_speculative_tokens": 4}' | \\
    outdraft emit --speculation - --engine llamacpp --target /models/target.gguf
"""
_SLOW_S = 2.0

_EMIT = (
    Option("--speculation", "JSON or TOML: our keys or those of vLLM's --speculative-config; "
           "- reads the standard input", metavar="FILE"),
    Option("--engine", "vllm, sglang, llamacpp or outdraft"),
    Option("--form", "cli, json, compose or k8s", default="cli"),
    Option("--engine-version", "flags for this version (default: the one installed here, else the "
           "newest known)", metavar="V"),
    Option("--out", "write to this file", metavar="FILE"),
)  # fmt: skip

_SERVING = (
    Option("--target", "the model to serve, as the engine will find it", default="smollm2-135m",
           metavar="MODEL"),
    Option("--tensor-parallel-size", "GPUs of each host", default=1, type=int, metavar="N"),
    Option("--hosts", "machines: vLLM through Ray, SGLang by its own nodes", default=1, type=int,
           metavar="N"),
    Option("--port", "where it will serve", default=8000, type=int, metavar="N"),
    Option("--served-model-name", "what requests call it", metavar="NAME"),
    Option("--max-model-len", "tokens of a prompt and its answer", type=int, metavar="N"),
    Option("--max-num-seqs", "sequences at a time", type=int, metavar="N"),
    Option("--dtype", "of the target", metavar="TYPE"),
    Option("--quantization", "of the target's weights", metavar="FORMAT"),
    Option("--engine-flags", "more flags of the engine, as one text", metavar="FLAGS"),
)  # fmt: skip


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "emit",
        help="write an engine's configuration for a speculation",
        usage="outdraft emit --speculation FILE --engine ENGINE [options]",
        description="Write a speculation as a configuration to paste: a command, JSON, a Compose "
        "file or Kubernetes manifests, with the reason for each line.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_options(parser, "what to write", _EMIT)
    add_options(parser, "what is served", _SERVING)
    parser.add_argument("--debug", action="store_true", help=argparse.SUPPRESS)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from outdraft.backends.backend import Serving
    from outdraft.emit import ENGINES, FORMS, engine_config, write_form
    from outdraft.errors import unknown_choice
    from outdraft.whole_file import write_text

    for flag in ("speculation", "engine"):
        if getattr(args, flag) is None:
            raise OptionError(f"--{flag} is missing; see `outdraft emit --help`")
    if args.engine not in ENGINES:
        raise unknown_choice("engine", args.engine, ENGINES)
    if args.form not in FORMS:
        raise unknown_choice("form", args.form, FORMS)
    if not 1 <= args.port <= 65535:
        raise OptionError(f"--port must be between 1 and 65535, got {args.port}")
    for name in ("max_model_len", "max_num_seqs"):
        value = getattr(args, name)
        if value is not None and value < 1:
            raise OptionError(f"--{name.replace('_', '-')} must be at least 1, got {value}")
    speculation = read_speculation(args.speculation)
    serving = Serving(
        target=args.target,
        served_name=args.served_model_name,
        max_model_len=args.max_model_len,
        max_num_seqs=args.max_num_seqs,
        tensor_parallel_size=args.tensor_parallel_size,
        dtype=args.dtype,
        quantization=args.quantization,
        extra=_words(args.engine_flags),
    )
    with _patience(f"asking {args.engine} which options it has (once; the answer is kept)"):
        config = engine_config(
            args.engine,
            speculation,
            serving,
            version=args.engine_version,
            hosts=args.hosts,
            port=args.port,
        )
    text = write_form(config, args.form)
    if args.out is None:
        print(text, end="")
    else:
        write_text(Path(args.out), text)
        print(f"outdraft: wrote {args.out} ({args.engine} {config.version}, {args.form})",
              file=sys.stderr)  # fmt: skip
    return 0


def read_speculation(name: str) -> Speculation:
    """A Speculation out of a JSON or TOML file, alone or under the key `speculation`, or out of
    an `outdraft.toml`."""
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise OptionError(f"cannot read {name}: {reason}") from error
    settings = _parsed(text, name)
    served = settings.get("serve")
    if isinstance(served, dict):  # what a tuning run leaves for our own server
        settings = _parsed(str(served.get("speculative_config", "{}")), name)
    inner = settings.get("speculation")
    return Speculation.from_mapping(inner if isinstance(inner, dict) else settings)


def _parsed(text: str, name: str) -> dict[str, Any]:
    try:
        settings = json.loads(text)
    except ValueError as not_json:
        try:
            settings = tomllib.loads(text)
        except tomllib.TOMLDecodeError as not_toml:
            said = not_json if text.lstrip().startswith("{") else not_toml
            raise OptionError(f"{name} is neither JSON nor TOML ({said})") from None
    if not isinstance(settings, dict):
        raise OptionError(f"{name} holds no settings but {str(settings)[:40]!r}")
    return settings


def _words(text: str | None) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text or ""))
    except ValueError as error:
        raise OptionError(f"--engine-flags cannot be read ({error}), got {text!r}") from None


@contextmanager
def _patience(words: str) -> Iterator[None]:
    """Says what takes so long, once it does."""
    timer = Timer(_SLOW_S, lambda: print(f"outdraft: {words}", file=sys.stderr, flush=True))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
