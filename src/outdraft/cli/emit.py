"""`outdraft emit`: writes a speculation as a configuration that an engine accepts."""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from outdraft.cli.progress import say_if_slow
from outdraft.emit import engine_config, write_form
from outdraft.emit.settings import read_file, serving_from
from outdraft.whole_file import write_text


def run(args: argparse.Namespace) -> int:
    found = read_file(args.speculation)
    serving, notes = serving_from(args, found)
    with say_if_slow(f"asking {args.engine} which options it has (once; the answer is kept)"):
        config = engine_config(
            args.engine,
            found.speculation,
            serving,
            version=args.engine_version,
            hosts=args.hosts,
            port=args.port,
        )
    text = write_form(replace(config, notes=(*notes, *config.notes)), args.form)
    if args.out is None:
        print(text, end="")
    else:
        write_text(Path(args.out), text)
        written = f"wrote {args.out} ({args.engine} {config.version}, {args.form})"
        print(f"outdraft: {written}", file=sys.stderr)
    return 0
