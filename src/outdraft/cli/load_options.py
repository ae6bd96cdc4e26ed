"""Options of the commands that put a load on a server, and what they mean."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from outdraft.cli.options import Option
from outdraft.errors import OptionError, OutdraftError

if TYPE_CHECKING:
    from outdraft.loadgen.endpoint import Endpoint
    from outdraft.loadgen.load import Sink
    from outdraft.records import Record
    from outdraft.workload.prompt import Prompt

LOAD = (
    Option(
        "--prompts",
        "built-in, or a file: our JSONL, ShareGPT, OpenAI logs, MT-Bench, Spec-Bench, "
        "HumanEval, GSM8K",
        default="built-in",
        metavar="SOURCE",
    ),
    Option("--category", "only this category; may be repeated", metavar="NAME", repeats=True),
    Option("--temperature", "one, or a mix such as 0.0:60%%,0.8:40%%", default="0", metavar="MIX"),
    Option("--concurrency", "requests at a time", default=4, type=int, metavar="N"),
    Option("--max-tokens", "per answer (default: what each prompt needs)", type=int, metavar="N"),
    Option("--seed", "of prompts, temperatures and arrivals", default=0, type=int),
    Option("--model", "name of the model to ask for (default: the first served)", metavar="NAME"),
    Option("--api-key", "sent as a bearer token", metavar="KEY"),
    Option("--force-random", "allow --prompts random", is_switch=True),
)


def check_counts(args: argparse.Namespace, *keys: str) -> None:
    """Before anything is sent: these, where they are given, count something."""
    for key in keys:
        value = getattr(args, key)
        if value is not None and value < 1:
            raise OptionError(f"--{key.replace('_', '-')} must be at least 1, got {value}")


def endpoint_of(url: str, args: argparse.Namespace) -> Endpoint:
    """The server at `url`, once it has answered."""
    from outdraft.loadgen.endpoint import Endpoint
    from outdraft.measure.server import check_alive, model_of

    endpoint = Endpoint(url, model=args.model, api_key=args.api_key)
    check_alive(endpoint)
    if args.model is None:
        endpoint = Endpoint(url, model=model_of(endpoint), api_key=args.api_key)
    return endpoint


def prompts_of(args: argparse.Namespace) -> list[Prompt]:
    from outdraft.workload.sets import choose_prompts

    return choose_prompts(
        args.prompts,
        categories=args.category or (),
        force_random=args.force_random,
        seed=args.seed,
    )


@contextmanager
def recording(total: int, title: str, out: str | None) -> Iterator[Sink]:
    """Shows and, with `out`, journals each record. Write `out` inside: it then replaces the
    journal, which a run that does not get so far leaves behind."""
    from rich.console import Console

    from outdraft.loadgen.journal import Journal
    from outdraft.report.live import live

    if out is not None:
        _put_aside(Path(f"{out}.journal"))
    with live(total, title, Console(file=sys.stderr)) as tell:
        if out is None:
            yield tell
            return
        with Journal(Path(f"{out}.journal")) as journal:

            def sink(record: Record) -> None:
                tell(record)
                journal.add(record)

            yield sink
        if Path(out).exists():
            journal.path.unlink()


def _put_aside(journal: Path) -> None:
    """What an earlier run left is kept, and is not mixed with this one's."""
    if not journal.exists():
        return
    number = 1
    while (aside := journal.with_name(f"{journal.name}.{number}")).exists():
        number += 1
    try:
        journal.rename(aside)
    except OSError as error:
        raise OutdraftError(f"cannot rename {journal}: {error.strerror}") from error
    print(f"note: the records of a run that did not end are in {aside}", file=sys.stderr)
