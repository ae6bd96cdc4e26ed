"""What `bench` and `compare` are asked to do: their options, checked and turned into values."""

import argparse
import secrets
from dataclasses import replace
from typing import Any

from outdraft.errors import OptionError
from outdraft.loadgen.endpoint import Endpoint, optional_fields
from outdraft.measure.comparison import ComparisonSettings
from outdraft.measure.gpus import check_page
from outdraft.measure.saved import read_noise_floor, read_plan
from outdraft.options import make_settings
from outdraft.stats.ratios import MIN_BLOCKS
from outdraft.workload.temperatures import parse_mix


def endpoint_from(url: str, args: argparse.Namespace) -> Endpoint:
    """The server at `url`, once it has answered."""
    optional = optional_fields(stop_at_eos=args.stop_at_eos)
    endpoint = Endpoint(
        url,
        model=args.model,
        api_key=args.api_key,
        extra=args.extra_body or {},
        form=args.endpoint,
        extra_headers=dict(args.header or ()),
        optional=optional,
    )
    identity = endpoint.server.identify()
    return endpoint if args.model is not None else replace(endpoint, model=identity.model)


def gpu_pages(args: argparse.Namespace, num_servers: int) -> list[str | None]:
    """Of each server the page about its GPUs, once it has answered; one page may be that of all."""
    urls: list[str] = args.gpu_metrics or []
    if len(urls) > num_servers:
        raise OptionError(
            f"--gpu-metrics is given {len(urls)} times, for {num_servers} "
            f"server{'s' * (num_servers > 1)}; give one for each at most"
        )
    for url in urls:
        check_page(url)
    last = urls[-1] if urls else None
    return [*urls, *[last] * (num_servers - len(urls))]


def describe_requests(args: argparse.Namespace) -> dict[str, Any]:
    """How requests are sent, for the record of a run; of headers only the names."""
    return {
        "endpoint": args.endpoint,
        "extra_body": args.extra_body or {},
        "headers": [name for name, _ in args.header or ()],
    }


def comparison_settings(args: argparse.Namespace, *, is_live: bool) -> ComparisonSettings:
    """`is_live`: requests are sent; runs that were saved have theirs."""
    memory, pairing = (None, None) if args.plan is None else read_plan(args.plan)
    block, most = (args.block, args.requests) if is_live else (None, None)
    if block is not None and most is not None:
        # An interval needs five blocks: few requests make smaller blocks, never more requests.
        block = min(block, most // MIN_BLOCKS)
    looks = {"num_looks": 1} if args.one_look else {}
    return make_settings(
        ComparisonSettings,
        args,
        **looks,
        memory=memory,
        pairing=pairing,
        max_requests=most,
        block_size=block,
        mix=parse_mix(args.temperature),
        noise_floor=read_noise_floor(args.noise_floor),
        salt=secrets.token_hex(4),
    )
