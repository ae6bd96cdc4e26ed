"""`outdraft report DIR`: makes the page of a tuning run again from its results."""

import argparse
import json
from pathlib import Path

from outdraft.report.tables import best_line
from outdraft.report.write import rebuild_report
from outdraft.tune.wording import answer_json


def run(args: argparse.Namespace) -> int:
    path, results = rebuild_report(Path(args.folder), None if args.out is None else Path(args.out))
    if args.json:
        answer = answer_json(results)
        print(json.dumps({"report": str(path), "best": best_line(results), "answer": answer}))
    else:
        print(path)
    return 0
