"""`outdraft serve`: the engine behind an OpenAI-compatible address."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from contextlib import suppress
from functools import partial
from typing import Any

from outdraft.cli.config_file import add_options_with_file, fill
from outdraft.cli.options import BATCH, SERVER, SPECULATION, TARGET, Option, engine_settings
from outdraft.cli.speculative_config import CONFIG, add_config_options, speculation_of
from outdraft.errors import OptionError
from outdraft.speculation import Speculation

_EXAMPLES = """\
examples:
  outdraft serve
  outdraft serve --method ngram --k 5
  outdraft serve --speculative-config '{"method": "suffix", "num_speculative_tokens": 6}'
  outdraft serve --target ./my-model --method draft_model --draft ./my-draft --port 9000
  curl http://127.0.0.1:8000/v1/chat/completions -H 'Content-Type: application/json' \\
    -d '{"messages": [{"role": "user", "content": "Hello"}], "speculation": {"k": 3}}'
"""

_FILE = Option("--config", "the same options from a TOML file; flags win", metavar="FILE")


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "serve",
        help="serve a model over HTTP, as OpenAI does",
        usage="outdraft serve [options]",
        description="Serve a model over HTTP with OpenAI's API. Every client that speaks to "
        "OpenAI or vLLM speaks to this; /metrics has vLLM's names.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_options_with_file(parser, "server", (*SERVER, _FILE))
    add_options_with_file(parser, "target", TARGET)
    add_options_with_file(parser, "batch", BATCH)
    add_options_with_file(parser, "speculation", SPECULATION)
    add_config_options(parser)
    parser.add_argument("--debug", action="store_true", help=argparse.SUPPRESS)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    fill_in(args)
    speculation = speculation_of(args, _tell)
    if not args.host:  # the system would take it for every address
        raise OptionError("--host is empty; 0.0.0.0 serves at every address of this machine")
    if not 0 <= args.port <= 65535:
        raise OptionError(f"--port must be between 0 and 65535, got {args.port}")
    if args.max_num_waiting < 0:
        raise OptionError(f"--max-num-waiting must not be negative, got {args.max_num_waiting}")
    if not 0 <= args.drain_timeout < float("inf"):
        raise OptionError(f"--drain-timeout must not be negative, got {args.drain_timeout}")
    api_key = args.api_key if args.api_key is not None else os.environ.get("OUTDRAFT_API_KEY")
    if api_key == "":
        raise OptionError("--api-key is empty; give a key, or leave it out to ask for none")

    from outdraft.cli.show import loading

    try:
        from outdraft.engine.assemble import load_engine
        from outdraft.server.engine_thread import EngineThread
        from outdraft.server.serve import bind, make_server
    except ImportError as error:
        raise OptionError(
            f"the server needs a package that is not here ({error.name}); "
            "run pip install 'outdraft[server]'"
        ) from error

    # The address first: nobody should wait for a model to learn that the port is taken.
    with bind(args.host, args.port) as at:
        thread = EngineThread()
        with loading() as on_layer:
            load = partial(
                load_engine,
                args.target,
                speculation,
                **engine_settings(args),
                max_num_seqs=args.max_num_seqs,
                max_num_batched_tokens=args.max_num_batched_tokens,
                reuse_prefixes=not args.no_enable_prefix_caching,
                progress=None,
                on_layer=on_layer,
            )
            engine = thread.submit(load).result()
        if args.access_log:
            _log_requests()
        names = tuple(dict.fromkeys(args.served_model_name or [args.target]))
        host, port = at.getsockname()[:2]
        address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        server = make_server(
            engine,
            model_names=names,
            thread=thread,
            api_key=api_key,
            max_open=args.max_num_seqs + args.max_num_waiting,
            drain_s=args.drain_timeout,
            always_metrics=args.enable_per_request_metrics,
            access_log=args.access_log,
            on_ready=lambda: _tell(f"{names[0]} ({_named(speculation)}) at {address}"),
            on_drain=lambda num_open: _tell(
                f"shutting down: {num_open} texts to finish within {args.drain_timeout:g} s"
            ),
        )
        server.run(sockets=[at])
    if server.failure is not None:
        _tell(f"the engine stopped: {server.failure}")
        return 1
    _tell("stopped")
    return 0


def fill_in(args: argparse.Namespace) -> None:
    """What was not given as a flag."""
    fill(args, (*SERVER, *TARGET, *BATCH, *SPECULATION, CONFIG), args.config, "serve")


def _named(speculation: Speculation) -> str:
    if speculation.is_off:
        return "no speculation"
    lossy = ", lossy" if speculation.is_lossy else ""
    return f"{speculation.method}, k={speculation.k}, {speculation.rule}{lossy}"


def _log_requests() -> None:
    """uvicorn writes the lines; nobody but us has told it where to."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("outdraft: %(message)s"))
    log = logging.getLogger("uvicorn.access")
    log.addHandler(handler)
    log.setLevel(logging.INFO)


def _tell(words: str) -> None:
    with suppress(OSError):  # whoever read it may be gone; the server goes on all the same
        print(f"outdraft: {words}", file=sys.stderr, flush=True)
