"""`outdraft export DRAFT --out DIR`: a draft as the folder that vLLM and SGLang load."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from outdraft.cli.options import Option, add_options
from outdraft.distill.storage import STORAGES
from outdraft.errors import OptionError, unknown_choice

_EXAMPLES = """\
examples:
  outdraft export smollm2-135m-draft --out draft
  outdraft export smollm2-135m-eagle --out head
  outdraft export ./my-draft.Q8_0.gguf --out my-draft
  vllm serve TARGET --speculative-config \\
    '{"method": "draft_model", "model": "./draft", "num_speculative_tokens": 5}'
"""

_EXPORT = (
    Option("--out", "folder to write, new or empty", metavar="DIR"),
    Option("--storage", f"of a head's matrices: {', '.join(STORAGES)}", default="bfloat16",
           metavar="TYPE"),
    Option("--json", "print one JSON object, nothing else", is_switch=True),
)  # fmt: skip


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "export",
        help="write a draft as a folder that other engines load",
        usage="outdraft export MODEL --out DIR [options]",
        description="Write a .gguf model as a Hugging Face folder, its weights in bfloat16, for "
        "engines that do not read GGUF files; or a head in another storage. The drafts that ship "
        "with outdraft have names.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "model", metavar="MODEL", help="a catalog name, a .gguf file or a head's folder"
    )
    add_options(parser, "export", _EXPORT)
    parser.add_argument("--debug", action="store_true", help=argparse.SUPPRESS)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if args.out is None:
        raise OptionError("no place for the folder; give --out DIR")
    folder = Path(args.out)
    if folder.is_file():
        raise OptionError(f"--out {folder} is a file; give a folder")
    if folder.is_dir() and any(folder.iterdir()):
        raise OptionError(f"--out {folder} is not empty; give a new folder")
    if args.storage not in STORAGES:
        raise unknown_choice("storage", args.storage, STORAGES)
    try:
        from outdraft.distill.export import export_draft
    except ImportError as error:
        raise OptionError(
            f"exporting needs a package that is not here ({error.name}); "
            "run pip install 'outdraft[engine]'"
        ) from error
    from outdraft.cli.show import loading

    with loading() as tell:
        made = export_draft(args.model, folder, args.storage, tell)
    if args.json:
        print(json.dumps({**asdict(made), "source": str(made.source), "folder": str(folder)}))
    else:
        print(
            f"{folder}: {made.num_parameters:,} parameters, {made.num_bytes / 1e6:.1f} MB in "
            f"{args.storage}, from {made.source}"
        )
    return 0
