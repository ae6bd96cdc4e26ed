"""`outdraft serve`: serves the engine at an OpenAI-compatible address."""

import argparse
import gc
import logging
import os
import sys
from contextlib import suppress
from functools import partial

import outdraft
from outdraft.cli.progress import show_loading
from outdraft.cli.speculative_config import speculation_in_any_form
from outdraft.engine.settings import engine_settings
from outdraft.errors import OptionError
from outdraft.speculation import Speculation


def run(args: argparse.Namespace) -> int:
    speculation = speculation_in_any_form(args, _say)
    if not args.host:  # the system would take it for every address
        raise OptionError("--host is empty; 0.0.0.0 serves at every address of this machine")
    api_key = args.api_key if args.api_key is not None else os.environ.get("OUTDRAFT_API_KEY")
    if api_key == "":
        raise OptionError("--api-key is empty; give a key, or leave it out to require none")
    admin_key = args.admin_key
    if admin_key is None:
        admin_key = os.environ.get("OUTDRAFT_ADMIN_KEY")
    if admin_key == "":
        raise OptionError("--admin-key is empty; give a key, or leave it out to have no such path")
    if admin_key is not None and admin_key == api_key:
        raise OptionError("--admin-key is the --api-key too; give another one, which fewer know")
    failure = _serve(args, speculation, api_key, admin_key)
    _say("stopped" if failure is None else f"the engine stopped: {failure}")
    return 0 if failure is None else 1


def _serve(
    args: argparse.Namespace, speculation: Speculation, api_key: str | None, admin_key: str | None
) -> str | None:
    """Serves until a signal. Returns why the engine stopped, if it did so by itself."""
    # torch and uvicorn: only a server needs them, not --help.
    from outdraft.server.serve import Canary, EngineThread, Server, bind

    # The address first: a port that is taken is reported before a model is loaded.
    with bind(args.host, args.port) as taken:
        thread = EngineThread()
        with show_loading() as shown:
            load = partial(
                outdraft.load_engine,
                args.target,
                speculation,
                **engine_settings(args),
                max_num_seqs=args.max_num_seqs,
                max_num_batched_tokens=args.max_num_batched_tokens,
                reuse_prefixes=not args.no_enable_prefix_caching,
                progress=None,
                **shown,
            )
            engine = thread.submit(load).result()
        if args.access_log:  # uvicorn's lines about requests
            handler = logging.StreamHandler()
            handler.setFormatter(logging.Formatter("outdraft: %(message)s"))
            log = logging.getLogger("uvicorn.access")
            log.addHandler(handler)
            log.setLevel(logging.INFO)
        names = tuple(dict.fromkeys(args.served_model_name or [args.target]))
        host, port = taken.getsockname()[:2]
        address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        server = Server(
            engine,
            model_names=names,
            thread=thread,
            api_key=api_key,
            max_open=args.max_num_seqs + args.max_num_waiting,
            drain_s=args.drain_timeout,
            always_metrics=args.enable_per_request_metrics,
            can_forget=args.enable_forget,
            admin_key=admin_key,
            canary=Canary(args.canary_share),
            access_log=args.access_log,
            on_ready=lambda: _say(f"{names[0]} ({engine.speculation.describe()}) at {address}"),
            on_drain=lambda num_open: _say(
                f"shutting down: {num_open} texts to finish within {args.drain_timeout:g} s"
            ),
        )
        gc.freeze()  # model and modules stay: looking at them again costs 5 % of the steps' time
        server.run(sockets=[taken])
    return server.failure


def _say(line: str) -> None:
    with suppress(OSError):  # the reader of stderr may be gone; the server goes on
        print(f"outdraft: {line}", file=sys.stderr, flush=True)
