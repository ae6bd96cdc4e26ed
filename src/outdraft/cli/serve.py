"""`outdraft serve`: serves the engine at an OpenAI-compatible address."""

import argparse
import os
import sys
from contextlib import suppress

from outdraft.cli.progress import show_loading
from outdraft.cli.speculative_config import speculation_in_any_form
from outdraft.errors import OptionError


def run(args: argparse.Namespace) -> int:
    speculation = speculation_in_any_form(args, _say)
    if not args.host:  # the system would take it for every address
        raise OptionError("--host is empty; 0.0.0.0 serves at every address of this machine")
    api_key = args.api_key if args.api_key is not None else os.environ.get("OUTDRAFT_API_KEY")
    if api_key == "":
        raise OptionError("--api-key is empty; give a key, or leave it out to require none")
    # torch and uvicorn: only a server needs them, not --help.
    from outdraft.server.launch import serve_engine

    failure = serve_engine(args, speculation, api_key, show_loading=show_loading, say=_say)
    _say("stopped" if failure is None else f"the engine stopped: {failure}")
    return 0 if failure is None else 1


def _say(line: str) -> None:
    with suppress(OSError):  # the reader of stderr may be gone; the server goes on
        print(f"outdraft: {line}", file=sys.stderr, flush=True)
