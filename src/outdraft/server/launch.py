"""Loads an engine and serves it, as the options of `outdraft serve` say."""

import argparse
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

from outdraft.engine.assemble import load_engine
from outdraft.engine.settings import engine_settings
from outdraft.server.engine_thread import EngineThread
from outdraft.server.serve import Server, bind
from outdraft.speculation import Speculation

ShowLoading = Callable[[], AbstractContextManager[Callable[[int, int], None]]]


def serve_engine(
    args: argparse.Namespace,
    speculation: Speculation,
    api_key: str | None,
    *,
    show_loading: ShowLoading,
    say: Callable[[str], None],
) -> str | None:
    """Serves until a signal. Returns why the engine stopped, if it did so by itself."""
    # The address first: a port that is taken is reported before a model is loaded.
    with bind(args.host, args.port) as taken:
        thread = EngineThread()
        with show_loading() as on_layer:
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
            access_log=args.access_log,
            on_ready=lambda: say(f"{names[0]} ({speculation.describe()}) at {address}"),
            on_drain=lambda num_open: say(
                f"shutting down: {num_open} texts to finish within {args.drain_timeout:g} s"
            ),
        )
        server.run(sockets=[taken])
    return server.failure
