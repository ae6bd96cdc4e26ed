"""What is sent to a server and when: the options of a load, checked and turned into a plan."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outdraft.errors import OptionError
from outdraft.workload import arrivals
from outdraft.workload.plan import choose_balanced, plan_requests, salted
from outdraft.workload.prompt import Planned, Prompt, digest_of
from outdraft.workload.sets import choose_prompts
from outdraft.workload.temperatures import parse_mix
from outdraft.workload.training import unseen_prompts

_NUM_REQUESTS = 64


def prompts_from(args: argparse.Namespace) -> tuple[list[Prompt], list[str]]:
    """The prompts that the candidate's draft has not seen, and what to know about the others."""
    wanted, force = args.category or (), args.force_random
    prompts = choose_prompts(args.prompts, categories=wanted, force_random=force, seed=args.seed)
    return unseen_prompts(prompts, _drafts(args))


def _drafts(args: argparse.Namespace) -> list[str]:
    return [] if args.draft is None else [args.draft]


@dataclass(frozen=True, slots=True)
class LoadPlan:
    requests: Sequence[Planned]
    warmup: Sequence[Planned]
    concurrency: int | None  # None: each request is sent at its time
    description: dict[str, Any]  # for the record of the run
    notes: Sequence[str] = ()  # on prompts that were left out
    spare: Sequence[Planned] = ()  # to keep the load up before and after the requests


def plan_load(args: argparse.Namespace, num_spare: int = 0) -> LoadPlan:
    """The requests of one run: so many at a time, at a rate, or at the times of a trace.
    `num_spare`: with so many at a time. At a steady rate there are twice as many as requests; a
    trace and a rate that changes have no load that could be kept up."""
    if args.replay is not None and args.rate is not None:
        raise OptionError("--rate and --replay both say when requests are sent; keep one")
    count, rate, seed = args.requests or _NUM_REQUESTS, args.rate, args.seed
    prompts, offsets_ns = None, None
    notes: list[str] = []
    description = {"rate": rate, "burstiness": args.burstiness, "ramp_to": args.ramp_to}
    if args.replay is not None:
        path, speed = Path(args.replay), args.replay_speed
        offsets_ns, prompts = arrivals.read_trace(path, speed=speed, at_most=args.requests)
        if prompts is not None:  # each with its own time
            unseen, notes = unseen_prompts(prompts, _drafts(args))
            kept = {prompt.digest for prompt in unseen}
            timed = zip(offsets_ns, prompts, strict=True)
            offsets_ns = [at for at, prompt in timed if prompt.digest in kept]
            prompts = unseen
        count = len(offsets_ns)
        description = {"replay": args.replay, "speed": speed}
    elif rate is None:
        description = {"concurrency": args.concurrency}
    elif args.ramp_to is not None or args.burstiness == float("inf"):
        offsets_ns = arrivals.ramp(rate, rate if args.ramp_to is None else args.ramp_to, count)
    else:
        offsets_ns = arrivals.gamma(rate, count, seed, burstiness=args.burstiness)
    if offsets_ns is not None:
        num_spare = 2 * count if args.replay is None and args.ramp_to is None else 0
    source = prompts
    if source is None:
        source, notes = prompts_from(args)
    chosen = choose_balanced(source, count + args.warmup, seed)
    if prompts is not None:  # of the trace: each at its own time
        chosen[:count] = prompts
    used = {prompt.id for prompt in chosen}
    others = [prompt for prompt in source if prompt.id not in used] or source
    spare = choose_balanced(others, num_spare, seed)
    mix, tokens = parse_mix(args.temperature), args.max_tokens
    description |= {
        "max_tokens": tokens,
        "stop_at_eos": args.stop_at_eos,
        "draft": args.draft,
        "prompts": digest_of(chosen[:count]),
    }
    return LoadPlan(
        plan_requests(chosen[:count], mix=mix, seed=seed, max_tokens=tokens, offsets_ns=offsets_ns),
        plan_requests(chosen[count:], mix=mix, seed=seed + 1, max_tokens=tokens),
        args.concurrency if offsets_ns is None else None,
        description,
        notes,
        # Marked, because they may have to use prompts again.
        [salted(each, f"spare-{at}") for at, each in enumerate(
            plan_requests(spare, mix=mix, seed=seed + 2, max_tokens=tokens))],
    )  # fmt: skip
