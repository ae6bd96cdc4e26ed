"""What `outdraft tune` was asked for, as the values that the search takes."""

from __future__ import annotations

import argparse
import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from outdraft.cli.options import Option
from outdraft.errors import OptionError, unknown_choice
from outdraft.speculation import METHODS, QUANTIZATIONS, RULES

if TYPE_CHECKING:
    from outdraft.backends.backend import Backend, Capabilities, Serving
    from outdraft.measure.blocks import Blocks
    from outdraft.tune.assemble import Given
    from outdraft.tune.candidates import Space
    from outdraft.tune.session import Search
    from outdraft.workload.prompt import Prompt

_BACKENDS = {"embedded": "outdraft", "outdraft": "outdraft", "vllm": "vllm", "sglang": "sglang",
             "llamacpp": "llamacpp"}  # fmt: skip
_MAX_BLOCKS = 20
_LARGE_BLOCK = 8  # requests; one such block profiles a proposer, of smaller ones it takes two
_JUDGING = ("budget", "margin", "objective", "slo")
_FOREIGN_KS = 4  # an engine that has to be started for each draft length tries so many of them

TUNE = (
    Option("--target", "the model whose text is wanted", default="smollm2-135m", metavar="MODEL"),
    Option("--draft", "a draft model or head; may be repeated (default: those that ship for the "
           "target)", metavar="MODEL", repeats=True),
    Option("--backend", "embedded (outdraft's own engine), vllm, sglang or llamacpp",
           default="embedded", metavar="ENGINE"),
    Option("--methods", f"of {', '.join(METHODS[1:])} (default: all the engine has)",
           metavar="LIST"),
    Option("--k", "draft lengths: 2..8, or 2,4,6", default="2..8", metavar="RANGE"),
    Option("--draft-quantization", f"of {', '.join(QUANTIZATIONS)}", default="none,int8",
           metavar="LIST"),
    Option("--acceptance", f"verification rules, of {', '.join(RULES)}", default="coupled",
           metavar="LIST"),
    Option("--prompts", "built-in, or a file: our JSONL, ShareGPT, OpenAI logs, …",
           default="built-in", metavar="SOURCE"),
    Option("--category", "only this category; may be repeated", metavar="NAME", repeats=True),
    Option("--temperature", "one, or a mix such as 0.0:60%%,0.8:40%%", default="0", metavar="MIX"),
    Option("--concurrency", "requests at a time, one or several loads; the first is the main one",
           default="1,4", metavar="LIST"),
    Option("--rate", "requests a second instead, one or several", metavar="LIST"),
    Option("--objective", "tpot, e2e, throughput or goodput", default="e2e"),
    Option("--slo", "promised times in ms, for goodput: ttft=200,tpot=50", metavar="LIMITS"),
    Option("--max-tokens", "per answer", default=64, type=int, metavar="N"),
    Option("--block", "requests of one arm in a row (default: by the load)", type=int,
           metavar="N"),
    Option("--budget", "time for measuring: 90s, 10m, 1h", default="9m", metavar="TIME"),
    Option("--margin", "a difference up to this is none", default=0.01, type=float, metavar="X"),
    Option("--seed", "of prompts and temperatures", default=0, type=int),
    Option("--max-model-len", "tokens a text may have", type=int, metavar="N"),
    Option("--max-num-seqs", "sequences at a time in the engine", type=int, metavar="N"),
    Option("--tensor-parallel-size", "devices of the target", default=1, type=int, metavar="N"),
    Option("--threads", "CPU threads of the engine", type=int, metavar="N"),
    Option("--dtype", "of the target", metavar="TYPE"),
    Option("--gpu", "plan against this, e.g. h100:2: what does not fit is not tried",
           metavar="NAME:N"),
    Option("--engine-flags", "more flags of the engine, as one text", metavar="FLAGS"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tuning:
    backend: Backend
    serving: Serving
    search: Search
    blocks: dict[str, Blocks]
    given: Given
    header: dict[str, Any]  # identifies the run in its journal


def settings_of(args: argparse.Namespace) -> Tuning:
    """Everything is checked here, before a single file is written or engine started."""
    import shlex

    from outdraft.backends.backend import Serving
    from outdraft.backends.lookup import backend_named
    from outdraft.catalog import resolve
    from outdraft.cli.load_options import check_counts
    from outdraft.measure.blocks import make_blocks
    from outdraft.measure.summary import parse_slo
    from outdraft.tune.arm import proposer_name
    from outdraft.tune.assemble import Given
    from outdraft.tune.candidates import Can, enumerate_arms, parse_ks, thinned
    from outdraft.tune.objective import Objective
    from outdraft.tune.pruning import pruner
    from outdraft.tune.scheduled import part_of
    from outdraft.tune.session import Search
    from outdraft.tune.standing import Rules
    from outdraft.workload.sets import choose_prompts
    from outdraft.workload.temperatures import parse_mix

    if args.backend not in _BACKENDS:
        raise unknown_choice("backend", args.backend, _BACKENDS)
    check_counts(args, "max_tokens", "block", "max_model_len", "max_num_seqs", "threads",
                 "tensor_parallel_size")  # fmt: skip
    if not 0 <= args.margin < 1:
        raise OptionError(f"--margin lies between 0 and 1, got {args.margin:g}")
    budget_s = parse_budget(args.budget)
    loads = _loads(args)
    objective = Objective(args.objective, None if args.slo is None else parse_slo(args.slo))
    if objective.name == "goodput" and objective.slo is None:
        raise OptionError("--objective goodput needs --slo, e.g. --slo ttft=500,tpot=60")
    mix = parse_mix(args.temperature)
    prompts = choose_prompts(args.prompts, categories=args.category or (), seed=args.seed)
    backend = backend_named(_BACKENDS[args.backend])
    backend.detect()
    if backend.name == "outdraft":
        resolve(args.target)  # fetched now, or refused in a line, not by an engine's log
    able = backend.capabilities()
    space = _space(args, able, is_own=backend.name == "outdraft")
    serving = Serving(
        target=args.target,
        max_model_len=args.max_model_len,
        max_num_seqs=args.max_num_seqs or max(16, *(each.concurrency or 16 for each in loads)),
        tensor_parallel_size=args.tensor_parallel_size,
        dtype=args.dtype,
        threads=args.threads,
        extra=tuple(shlex.split(args.engine_flags or "")),
    )
    can = Can(able.methods, able.rules, able.draft_quantizations)
    check = pruner(serving, args.gpu)
    arms, pruned = enumerate_arms(space, can, check.unfit)
    pruned += thinned(parse_ks(args.k), space.ks)
    if not arms:
        reasons = "; ".join(f"{each.name}: {each.reason}" for each in pruned)
        raise OptionError(f"nothing to try: {reasons or 'no method is left'}")
    blocks = {
        load.name: make_blocks(
            prompts,
            size=args.block or _block_size(load.concurrency),
            count=_MAX_BLOCKS,
            mix=mix,
            seed=args.seed + place,
            max_tokens=args.max_tokens,
        )
        for place, load in enumerate(loads)
    }
    proposers = {proposer_name(arm): arm for arm in arms}
    rules = Rules(
        objective,
        margin=args.margin,
        max_blocks=_MAX_BLOCKS,
        memory=_known({name: check.shares(arm) for name, arm in proposers.items()}),
        pairing=_known({name: check.pairing(arm) for name, arm in proposers.items()}),
    )
    told = {option.key: getattr(args, option.key) for option in TUNE}
    given = Given(
        settings=told,
        backend=args.backend,
        target=args.target,
        pruned=tuple(pruned),
        memory=check.memory,
    )
    # What only judges may change, and goes on with the same measurements.
    header = {key: value for key, value in told.items() if key not in _JUDGING}
    header["digest of the prompts"] = _digest(prompts)
    num_profile = {name: 1 for name, each in blocks.items() if each.size >= _LARGE_BLOCK}
    search = Search(
        tuple(arms),
        loads,
        rules,
        budget_s,
        num_profile,
        has_schedule=able.has_schedule,
        keeps_engines=backend.name == "outdraft",
    )
    blocks |= {part_of(load).name: blocks[load.name] for load in loads}
    return Tuning(backend, serving, search, blocks, given, header)


def _known(found: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if value is not None}


def _digest(prompts: Sequence[Prompt]) -> str:
    """Of everything that is sent: a file may change and keep its name."""
    text = json.dumps([asdict(each) for each in prompts], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def parse_budget(text: str) -> float:
    """`90s`, `10m`, `1.5h`, plain seconds → seconds."""
    matched = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|h|)", text.strip())
    seconds = float(matched[1]) * {"s": 1, "": 1, "m": 60, "h": 3600}[matched[2]] if matched else 0
    if seconds <= 0:
        raise OptionError(f"--budget {text!r} is no time; write e.g. 90s, 10m or 1h")
    return float(seconds)


def _loads(args: argparse.Namespace) -> tuple[Any, ...]:
    from outdraft.tune.arm import Load

    if args.rate is not None:
        return tuple(Load(rate=each) for each in _numbers("--rate", args.rate))
    return tuple(
        Load(concurrency=int(each)) for each in _numbers("--concurrency", args.concurrency)
    )


def _numbers(flag: str, text: str) -> list[float]:
    try:
        values = [float(each) for each in text.split(",")]
    except ValueError:
        values = []
    whole = flag == "--rate" or all(each == int(each) for each in values if each < 1e6)
    if not values or not whole or not all(0 < each < 1e6 for each in values):
        raise OptionError(f"{flag} {text!r} is no list of numbers above 0; write e.g. 1,4,16")
    if len(set(values)) < len(values):
        raise OptionError(f"{flag} {text!r} names a load twice")
    return values


def _block_size(concurrency: int | None) -> int:
    """Enough for every slot to be busy most of the block."""
    return max(4, 2 * (concurrency or 4))


def _space(args: argparse.Namespace, able: Capabilities, *, is_own: bool) -> Space:
    from outdraft.tune.candidates import Space, draft_devices, parse_ks, spread_ks
    from outdraft.tune.drafts import drafts_by_method

    methods = _choices("method", args.methods, METHODS) or tuple(
        each for each in METHODS[1:] if each in able.methods
    )
    ks = parse_ks(args.k)
    drafts = drafts_by_method(args.target, tuple(args.draft or ()))
    if args.methods is None:  # not asked for by name: no complaint where there is no draft
        methods = tuple(each for each in methods if each not in ("draft_model", "eagle")
                        or drafts.get(each))  # fmt: skip
    return Space(
        methods=methods,
        ks=ks if is_own else spread_ks(ks, _FOREIGN_KS),
        drafts=drafts,
        quantizations=_choices("draft quantization", args.draft_quantization, QUANTIZATIONS),
        rules=_choices("verification rule", args.acceptance, RULES),
        draft_devices=draft_devices(
            is_able=able.has_draft_tensor_parallel, target_devices=args.tensor_parallel_size
        ),
    )


def _choices(what: str, text: str | None, valid: tuple[str, ...]) -> tuple[str, ...]:
    chosen = tuple(dict.fromkeys(each.strip() for each in (text or "").split(",") if each.strip()))
    for each in chosen:
        if each not in valid:
            raise unknown_choice(what, each, valid)
    return chosen
