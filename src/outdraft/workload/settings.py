"""What is sent to a server and when: the options of a load, checked and turned into a plan."""

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from outdraft.durations import parse_duration
from outdraft.errors import OptionError
from outdraft.workload import arrivals
from outdraft.workload.lengths import Count, Lengths, with_answers_of, with_prompts_of
from outdraft.workload.plan import choose_balanced, plan_requests, salted
from outdraft.workload.prompt import Planned, Prompt, digest_of
from outdraft.workload.sessions import choose_turns, join_turns
from outdraft.workload.sets import choose_prompts
from outdraft.workload.temperatures import parse_mix
from outdraft.workload.training import unseen_prompts

_NUM_REQUESTS = 64
# Requests of a load that ends by the clock, so that none is missing: for each slot and second, and
# in all.
_MOST_PER_SLOT_S, _MOST = 50, 30_000
_MOST_FITTED = 512  # prompts of a given length; each takes a few calls of the server


def prompts_from(args: argparse.Namespace) -> tuple[list[Prompt], list[str]]:
    """The prompts that the candidate's draft has not seen, and what to know about the others."""
    wanted, force = args.category or (), args.force_random
    notes: list[str] = []
    prompts = choose_prompts(
        args.prompts, categories=wanted, force_random=force, seed=args.seed, notes=notes
    )
    unseen, about_drafts = unseen_prompts(prompts, _drafts(args))
    return unseen, [*notes, *about_drafts]


def _drafts(args: argparse.Namespace) -> list[str]:
    return [] if args.draft is None else [args.draft]


@dataclass(frozen=True, slots=True)
class LoadPlan:
    name: str  # e.g. "concurrency 8"
    requests: Sequence[Planned]  # or sessions, each with its later turns
    warmup: Sequence[Planned]
    concurrency: int | None  # None: each request is sent at its time
    description: dict[str, Any]  # for the record of the run
    notes: Sequence[str] = ()  # on prompts that were left out
    spare: Sequence[Planned] = ()  # to keep the load up before and after the requests
    duration_s: float | None = None  # requests are sent for so long, and not all of them
    source: Sequence[Prompt] = ()  # all prompts that there are

    @property
    def num_requests(self) -> int:
        return sum(1 + len(each.then) for each in self.requests)

    @property
    def size(self) -> float | None:
        """Requests at a time, or a second; None for a trace."""
        return self.concurrency or self.description.get("rate")


def plan_loads(args: argparse.Namespace, num_spare: Callable[[int | None], int]) -> list[LoadPlan]:
    """The requests of each load: so many at a time, at a rate, or at the times of a trace.
    `num_spare`: how many more are needed with so many at a time."""
    if args.replay is not None:
        if args.rate is not None:
            raise OptionError("--rate and --replay both say when requests are sent; keep one")
        if args.turns > 1:
            raise OptionError("--turns: the requests of a trace are no sessions; leave one out")
        return [_plan_replay(args)]
    if args.rate is not None:
        loads = [_plan_rate(args, each) for each in args.rate]
    else:
        loads = [_plan_slots(args, each, num_spare(each)) for each in args.concurrency]
    if args.all_at_once:
        loads = [_alone(each) for each in loads]
    return loads if len(loads) == 1 else [_marked(each) for each in loads]


def _alone(load: LoadPlan) -> LoadPlan:
    """Without requests before and after those that count."""
    return replace(load, spare=(), description={**load.description, "all_at_once": True})


def _plan_slots(args: argparse.Namespace, concurrency: int, num_spare: int) -> LoadPlan:
    count, duration_s = args.requests or _NUM_REQUESTS, _duration_s(args)
    if duration_s is not None:
        most = min(math.ceil(duration_s * concurrency * _MOST_PER_SLOT_S), _MOST)
        count = min(args.requests or most, most)
    count = _in_sessions(count, args.turns)
    description = {"concurrency": concurrency}
    return _plan(args, f"concurrency {concurrency}", description, count, num_spare=num_spare,
                 concurrency=concurrency, duration_s=duration_s)  # fmt: skip


def _plan_rate(args: argparse.Namespace, rate: float) -> LoadPlan:
    """At a steady rate there are twice as many spare requests as others; a rate that changes is no
    load that could be kept up."""
    count, duration_s = args.requests or _NUM_REQUESTS, _duration_s(args)
    if duration_s is not None:
        in_time = max(math.ceil(duration_s * min(rate, _MOST)), 1)
        count = min(args.requests or in_time, in_time)
    count = _in_sessions(count, args.turns)
    if args.ramp_to is not None or args.burstiness == math.inf:
        offsets_ns = arrivals.ramp(rate, rate if args.ramp_to is None else args.ramp_to, count)
    else:
        offsets_ns = arrivals.gamma(rate, count, args.seed, burstiness=args.burstiness)
    description = {"rate": rate, "burstiness": args.burstiness, "ramp_to": args.ramp_to}
    return _plan(args, f"{rate:g} requests/s", description, count, offsets_ns=offsets_ns,
                 num_spare=2 * count if args.ramp_to is None else 0)  # fmt: skip


def _in_sessions(count: int, turns: int) -> int:
    """As many requests, or a few more: in whole sessions."""
    return -(-count // turns) * turns


def _plan_replay(args: argparse.Namespace) -> LoadPlan:
    path, speed = Path(args.replay), args.replay_speed
    notes: list[str] = []
    offsets_ns, prompts = arrivals.read_trace(path, speed=speed, at_most=args.requests, notes=notes)
    if (duration_s := _duration_s(args)) is not None:
        kept = max(sum(at < duration_s * 1e9 for at in offsets_ns), 1)
        offsets_ns, prompts = offsets_ns[:kept], prompts and prompts[:kept]
    if prompts is not None:  # each with its own time
        unseen, about_drafts = unseen_prompts(prompts, _drafts(args))
        notes += about_drafts
        kept_digests = {prompt.digest for prompt in unseen}
        timed = zip(offsets_ns, prompts, strict=True)
        offsets_ns = [at for at, prompt in timed if prompt.digest in kept_digests]
        prompts = unseen
    description = {"replay": args.replay, "speed": speed}
    plan = _plan(args, "replay", description, len(offsets_ns), prompts, offsets_ns=offsets_ns)
    return replace(plan, notes=(*notes, *plan.notes))


def _plan(
    args: argparse.Namespace,
    name: str,
    description: dict[str, Any],
    count: int,
    prompts: Sequence[Prompt] | None = None,
    *,
    offsets_ns: Sequence[int] | None = None,
    num_spare: int = 0,
    concurrency: int | None = None,
    duration_s: float | None = None,
) -> LoadPlan:
    """`prompts`: of a trace, each at its own time."""
    seed = args.seed
    source, notes = (prompts, []) if prompts is not None else prompts_from(args)
    chosen = choose_balanced(source, count + args.warmup, seed)
    counted = choose_turns(source, count, args.turns, seed) if prompts is None else prompts
    chosen[:count] = counted
    used = {prompt.id for prompt in chosen}
    others = [prompt for prompt in source if prompt.id not in used] or source
    spare = choose_balanced(others, num_spare, seed)
    mix, tokens, answers = parse_mix(args.temperature), args.max_tokens, args.output_len
    if answers is not None and (tokens is not None or args.stop_at_eos):
        other = "--stop-at-eos" if tokens is None else "--max-tokens"
        raise OptionError(f"--output-len and {other} both say how long answers are; keep one")
    known = {
        **description,
        "max_tokens": tokens,
        "stop_at_eos": args.stop_at_eos,
        "draft": args.draft,
        "prompts": digest_of(counted if duration_s is None else set(counted)),
    }
    if duration_s is not None:
        known["duration_s"] = duration_s
    if answers is not None:
        known["output_len"] = str(answers)
    if args.turns > 1:
        known["turns"] = args.turns

    def planned(prompts: Sequence[Prompt], part: int, **times: Any) -> list[Planned]:
        plan = plan_requests(prompts, mix=mix, seed=seed + part, max_tokens=tokens, **times)
        return plan if answers is None else with_answers_of(plan, answers, seed + part)

    return LoadPlan(
        name,
        join_turns(planned(counted, 0, offsets_ns=offsets_ns), args.turns),
        planned(chosen[count:], 1),
        concurrency,
        known,
        notes,
        # Marked, because they may have to use prompts again.
        [salted(each, f"spare-{at}") for at, each in enumerate(planned(spare, 2))],
        duration_s,
        source,
    )


def with_input_lengths(load: LoadPlan, lengths: Lengths, seed: int, count: Count) -> LoadPlan:
    """The same load with prompts of these lengths."""

    def fit(plan: Sequence[Planned], part: int) -> list[Planned]:
        return with_prompts_of(plan, lengths, seed + part, source=load.source, count=count,
                               at_most=_MOST_FITTED)  # fmt: skip

    requests = fit(load.requests, 0)
    digest = digest_of({each.prompt for each in requests})
    return replace(
        load,
        requests=requests,
        warmup=fit(load.warmup, 1),
        spare=fit(load.spare, 2),
        description={**load.description, "input_len": str(lengths), "prompts": digest},
    )


def _marked(load: LoadPlan) -> LoadPlan:
    """With the load before every text: what a server has in its cache of one load must not help in
    the next."""

    def mark(plan: Sequence[Planned], part: str) -> list[Planned]:
        return [salted(each, f"{load.size:g}{part}/{at}") for at, each in enumerate(plan)]

    return replace(load, requests=mark(load.requests, ""), warmup=mark(load.warmup, "w"),
                   spare=mark(load.spare, "s"))  # fmt: skip


def _duration_s(args: argparse.Namespace) -> float | None:
    return None if args.duration is None else parse_duration(args.duration, option="--duration")
