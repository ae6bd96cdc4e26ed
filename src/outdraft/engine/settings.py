"""What an engine is asked to do: its options, checked and turned into values. No torch."""

import argparse
from typing import Any

from outdraft.engine.sequence import SamplingParams
from outdraft.options import make_settings
from outdraft.speculation import Speculation


def engine_settings(args: argparse.Namespace) -> dict[str, Any]:
    """The values of ENGINE_OPTIONS but the target, as keywords of `load_engine`."""
    keys = ("dtype", "quantization", "device", "threads", "max_model_len")
    values = {key: getattr(args, key) for key in keys}
    return values | {"kv_cache_bytes": args.kv_cache_memory_bytes}


def speculation_from(args: argparse.Namespace) -> Speculation:
    method = args.method or ("draft_model" if args.draft else "off")
    return make_settings(Speculation, args, method=method, quantization=args.draft_quantization)


def sampling_params(args: argparse.Namespace) -> SamplingParams:
    bias, stop = dict(args.logit_bias or ()), tuple(args.stop or ())
    return make_settings(SamplingParams, args, logit_bias=bias, stop=stop)
