"""What an engine is asked to do: its options, checked and turned into values. No torch."""

import argparse
from contextlib import suppress
from typing import Any

from outdraft.catalog import file_beside, local_files, shipped_draft
from outdraft.engine.native.library import library
from outdraft.engine.sequence import SamplingParams
from outdraft.errors import CatalogError, OptionError
from outdraft.modelspec.head import draft_method, is_head
from outdraft.options import make_settings
from outdraft.speculation import WITH_DRAFT, Speculation, check_own_method


def engine_settings(args: argparse.Namespace) -> dict[str, Any]:
    """The values of ENGINE_OPTIONS but the target, as keywords of `load_engine`."""
    keys = ("dtype", "quantization", "device", "threads", "max_model_len")
    values = {key: getattr(args, key) for key in keys}
    return values | {"kv_cache_bytes": args.kv_cache_memory_bytes}


def speculation_from(args: argparse.Namespace) -> Speculation:
    """A draft alone says the method; a method that needs a draft takes the target's own one."""
    method, draft = args.method, args.draft
    if method is None:
        method = _usual_method(args) if draft is None else method_for(draft)
    check_own_method(method)
    if draft is None and method in WITH_DRAFT:
        draft = shipped_draft(args.target, method)
    return make_settings(
        Speculation, args, method=method, draft=draft, quantization=args.draft_quantization
    )


def _usual_method(args: argparse.Namespace) -> str:
    """auto, where it was seen to lose at no load: on a CPU, with the compiled library."""
    can_choose = args.device == "cpu" and args.rule == "coupled" and library() is not None
    return "auto" if can_choose else "off"


def method_for(draft: str) -> str:
    """By the draft's files, of one on the hub by its config.json."""
    with suppress(CatalogError, OptionError):  # what cannot be found is told where it is loaded
        files = local_files(draft)
        if files is not None:
            return draft_method(files.path) or "draft_model"
        config = file_beside(draft, "config.json")
        if config is not None and is_head(config.parent):
            return "eagle"
    return "draft_model"


def sampling_params(args: argparse.Namespace) -> SamplingParams:
    bias, stop = dict(args.logit_bias or ()), tuple(args.stop or ())
    return make_settings(SamplingParams, args, logit_bias=bias, stop=stop)
