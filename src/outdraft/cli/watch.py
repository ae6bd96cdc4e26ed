"""`outdraft watch URL…`: is speculation paying now, and what should be done."""

import argparse
import asyncio
import json
import signal
import sys
from contextlib import AsyncExitStack
from pathlib import Path

from rich.console import Console

from outdraft.watch.boards import write_boards
from outdraft.watch.remembered import remembered_trail
from outdraft.watch.run import check_that_somebody_answered, run_watch
from outdraft.watch.settings import WatchSettings
from outdraft.watch.site import Site
from outdraft.watch.snapshot import Snapshot
from outdraft.watch.terminal import watch_view

KEPT, OTHERWISE = 0, 3  # exit codes


def run(args: argparse.Namespace) -> int:
    if args.write_boards is not None:
        for path in write_boards(Path(args.write_boards)):
            print(path)
        return 0
    settings = WatchSettings.from_options(args)
    snapshot = asyncio.run(_watch(settings))
    if settings.for_s is None or snapshot is None:
        return 0
    check_that_somebody_answered(snapshot)
    if settings.is_json:
        print(json.dumps(snapshot.to_json()))
    return KEPT if snapshot.is_kept else OTHERWISE


async def _watch(settings: WatchSettings) -> Snapshot | None:
    trail = remembered_trail(settings.state if settings.has_page else None)
    site = Site(has_page=settings.has_page, refresh_s=settings.interval_s, trail=trail)
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    console = Console(file=sys.stderr if settings.is_json else sys.stdout)
    async with AsyncExitStack() as stack:
        if settings.listen is not None:
            url = await stack.enter_async_context(site.serve(settings.listen))
            _say(f"page at {url}" if settings.has_page else f"metrics at {url}/metrics")
        show = stack.enter_context(watch_view(console))

        def show_both(snapshot: Snapshot) -> None:
            site.show(snapshot)
            show(snapshot)

        return await run_watch(settings, show_both, _say, stopped)


def _say(line: str) -> None:
    print(f"outdraft: {line}", file=sys.stderr, flush=True)
