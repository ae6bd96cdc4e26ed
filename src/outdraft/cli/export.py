"""`outdraft export DRAFT --out DIR`: writes a draft as a folder that vLLM and SGLang load."""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from outdraft.cli.progress import show_loading
from outdraft.errors import OptionError


def run(args: argparse.Namespace) -> int:
    folder = Path(args.out)
    if folder.is_file():
        raise OptionError(f"--out {folder} is a file; give a folder")
    if folder.is_dir() and any(folder.iterdir()):
        raise OptionError(f"--out {folder} is not empty; give a new folder")
    # torch: it reads and writes the weights.
    from outdraft.distill.saving.export import export_draft

    with show_loading() as shown:
        draft = export_draft(args.model, folder, args.storage, shown["on_layer"])
    if args.json:
        print(json.dumps({**asdict(draft), "source": str(draft.source), "folder": str(folder)}))
    else:
        print(
            f"{folder}: {draft.num_parameters:,} parameters, {draft.num_bytes / 1e6:.1f} MB in "
            f"{args.storage}, from {draft.source}"
        )
    return 0
