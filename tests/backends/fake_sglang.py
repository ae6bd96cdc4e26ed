"""A stand-in for SGLang: what `sglang.launch_server` starts, without a model.

    python -m tests.backends.fake_sglang --model-path FOLDER --port 30000 --enable-metrics …

It takes SGLang's flags and refuses what SGLang does not have, takes its time to load, logs, and
serves SGLang's wire with planted acceptance where the flags ask for speculation. Read out of the
published wheel, 0.5.23: flags in srt/arg_groups/fields/, paths in srt/entrypoints/http_server.py,
metrics in srt/observability/metrics_collector.py.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from outdraft.testing.fake_answers import LOG_INTERVAL
from outdraft.testing.fake_script import Script
from outdraft.testing.fake_server import FakeServer

VERSION = "0.5.23"
_LOADING_S = 0.3
_ALGORITHMS = ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM", "DFLASH", "DSPARK")
_WITH_DRAFT = ("EAGLE", "EAGLE3", "STANDALONE")
_NUMBERS = (
    "port", "max-running-requests", "context-length", "max-total-tokens", "tp-size",
    "speculative-num-steps", "speculative-num-draft-tokens", "speculative-eagle-topk",
    "speculative-ngram-min-bfs-breadth", "speculative-ngram-max-bfs-breadth",
    "speculative-ngram-max-trie-depth",
)  # fmt: skip
_WORDS = (
    "host", "dtype", "quantization", "served-model-name", "speculative-draft-model-path",
    "speculative-draft-model-quantization", "speculative-adaptive-config",
)  # fmt: skip
_SWITCHES = ("enable-metrics", "speculative-adaptive", "speculative-use-rejection-sampling")


def main(argv: Sequence[str] | None = None) -> None:
    args = parser().parse_args(argv)
    k = _draft_length(args)
    _log(f"server_args={args}")
    _log("Load weight begin.")
    _load(Path(args.model_path))
    if k and args.speculative_draft_model_path:
        _load(Path(args.speculative_draft_model_path))
    _log("Load weight end.")
    script = Script(ttft_s=0.01, tpot_s=0.02, k=k, acceptance=0.7, round_cost=1.0)
    server = FakeServer(
        script,
        dialect="sglang",
        whole_answers=True,
        model=args.served_model_name or args.model_path,
        pages={
            "/health_generate": {},
            "/flush_cache": {},
            "/server_info": {**vars(args), "version": VERSION},
        },
        port=args.port,
    )
    server.metrics.log_interval = args.decode_log_interval
    server.serve_metrics = args.enable_metrics
    server.serve(lambda: _log("The server is fired up and ready to roll!"))


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="launch_server.py", allow_abbrev=False)
    parser.add_argument("--model-path", required=True)
    parser.add_argument("--decode-log-interval", type=int, default=LOG_INTERVAL)
    parser.add_argument("--speculative-algorithm", choices=_ALGORITHMS)
    for name in _NUMBERS:
        parser.add_argument(f"--{name}", type=int, default=30000 if name == "port" else None)
    for name in _WORDS:
        parser.add_argument(f"--{name}")
    for name in _SWITCHES:
        parser.add_argument(f"--{name}", action="store_true")
    return parser


def _draft_length(args: argparse.Namespace) -> int:
    """0 without an algorithm, whatever the other flags say: so does SGLang."""
    if args.speculative_algorithm is None:
        return 0
    if args.speculative_algorithm in _WITH_DRAFT and not args.speculative_draft_model_path:
        raise ValueError(f"{args.speculative_algorithm} needs --speculative-draft-model-path")
    return int(args.speculative_num_draft_tokens) - 1


def _load(folder: Path) -> None:
    time.sleep(_LOADING_S)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if "model_type" not in config:
        raise ValueError(f"Unrecognized model in {folder}: no `model_type` in its config.json")


def _log(words: str) -> None:
    print(time.strftime("[%Y-%m-%d %H:%M:%S]"), words, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
