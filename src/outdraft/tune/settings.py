"""What a tuning run is asked to do: its options, checked and turned into values."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from outdraft.backends.backend import Serving
from outdraft.backends.options import split_flags
from outdraft.durations import parse_duration
from outdraft.errors import OptionError, unknown_choice
from outdraft.measure.summary import parse_slo
from outdraft.plan.devices import Devices, parse_gpu
from outdraft.shared_options import TARGET
from outdraft.speculation import METHODS, QUANTIZATIONS, RULES
from outdraft.tune.arm import Load
from outdraft.tune.candidates import Space, parse_ks
from outdraft.tune.options import OPTIONS
from outdraft.tune.rules import Objective
from outdraft.tune.servers import ServedArm, parse_servers
from outdraft.workload.prompt import Prompt
from outdraft.workload.sets import choose_prompts
from outdraft.workload.temperatures import parse_mix

# These may change when a run is continued with what it has measured: they judge, or say how engines
# share the machine, and how long is waited for them.
_JUDGING = ("budget", "margin", "objective", "slo", "keep_engines", "start_limit")
# Say how engines are started, and which: nothing that servers of others could be told
_STARTING = (
    "engine", "draft", "methods", "k", "draft_quantization", "rule", "max_model_len",
    "max_num_seqs", "tensor_parallel_size", "threads", "dtype", "gpu", "engine_flags",
    "keep_engines", "start_limit",
)  # fmt: skip
_OPEN_SLOTS = 16  # for requests that come by the clock
_CHARACTERS = 3  # of a prompt to a token, at least
# Keys and values in journals and results.json that the command line has other names for
_EARLIER_KEYS = {"engine": "backend", "rule": "acceptance"}
_EARLIER_ENGINES = {"outdraft": "embedded"}


@dataclass(frozen=True, slots=True)
class RunSettings:
    options: Mapping[str, Any]  # every option as it was given, under its key in results.json
    engine: str
    serving: Serving
    space: Space  # without drafts, which may have to be fetched
    drafts: tuple[str, ...]  # (): those that ship for the target
    prompts: Sequence[Prompt]
    mix: Sequence[tuple[float, float]]  # temperature, share of the requests
    loads: tuple[Load, ...]
    objective: Objective
    max_tokens: int
    stop_at_eos: bool
    block_size: int | None
    budget_s: float
    margin: float
    seed: int
    devices: Devices | None  # to plan against
    keep_engines: str | None  # how they share the machine; None: as it fits
    start_limit_s: float = 600.0  # for an engine; longer while its log goes on
    servers: tuple[ServedArm, ...] = ()  # that others started, off first; (): engines are started
    api_key: str | None = field(default=None, repr=False)  # of these servers
    prompt_notes: tuple[str, ...] = ()  # what the file of prompts holds and is not understood

    @classmethod
    def from_options(cls, args: argparse.Namespace) -> Self:
        """Everything is checked here, before a file is written or an engine is started."""
        objective = Objective(args.objective, None if args.slo is None else parse_slo(args.slo))
        if objective.name == "goodput" and objective.slo is None:
            raise OptionError("--objective goodput needs --slo, e.g. --slo ttft=500,tpot=60")
        loads, servers = _loads(args), _servers(args)
        # Elsewhere each one more is a process more for every draft length.
        quantizations = args.draft_quantization or (
            "none,int8" if args.engine == "outdraft" else "none"
        )
        left_out = _STARTING if servers else ("off", "on")
        options = {
            _EARLIER_KEYS.get(each.key, each.key): getattr(args, each.key)
            for each in OPTIONS
            if each.key not in left_out
        }
        if not servers:
            options["backend"] = _EARLIER_ENGINES.get(args.engine, args.engine)
            options["draft_quantization"] = quantizations
        elif args.target == TARGET.default:
            options["target"] = None  # it is what the servers have
        notes: list[str] = []
        prompts = choose_prompts(
            args.prompts, categories=args.category or (), seed=args.seed, notes=notes
        )
        return cls(
            options=options,
            engine=args.engine,
            serving=Serving(
                target=args.target,
                max_model_len=args.max_model_len,
                max_num_seqs=args.max_num_seqs,
                tensor_parallel_size=args.tensor_parallel_size,
                dtype=args.dtype,
                threads=args.threads,
                extra=split_flags(args.engine_flags),
                forgets=not args.keep_memory,
            ),
            space=Space(
                _choices("method", args.methods, METHODS),
                parse_ks(args.k),
                quantizations=_choices("draft quantization", quantizations, QUANTIZATIONS),
                rules=_choices("verification rule", args.rule, RULES),
            ),
            drafts=tuple(args.draft or ()),
            prompts=prompts,
            prompt_notes=tuple(notes),
            mix=parse_mix(args.temperature),
            loads=loads,
            objective=objective,
            max_tokens=args.max_tokens,
            stop_at_eos=args.stop_at_eos,
            block_size=args.block,
            budget_s=parse_duration(args.budget, option="--budget"),
            margin=args.margin,
            seed=args.seed,
            devices=None if args.gpu is None else parse_gpu(args.gpu),
            keep_engines=args.keep_engines,
            start_limit_s=parse_duration(args.start_limit, option="--start-limit"),
            servers=servers,
            api_key=args.api_key,
        )

    def with_slots(self, default: int | None) -> Self:
        """With as many sequences at a time as the loads need, where that is more than the engine's
        `default`. Otherwise it keeps its own number, as it will in production: with another one it
        may be faster or slower."""
        needed = max(each.concurrency or _OPEN_SLOTS for each in self.loads)
        if self.serving.max_num_seqs is not None or default is None or needed <= default:
            return self
        return replace(
            self,
            serving=replace(self.serving, max_num_seqs=needed),
            options={**self.options, "max_num_seqs": needed},
        )

    @property
    def kv_tokens(self) -> int:
        """Of all texts that are written at a time, with their prompts, at most; roughly."""
        at_a_time = max(each.concurrency or _OPEN_SLOTS for each in self.loads)
        longest = max(len(each.text) for each in self.prompts) // _CHARACTERS
        return at_a_time * (longest + 2 * self.max_tokens)  # lengths of answers are spread

    @property
    def measuring_options(self) -> dict[str, Any]:
        """Those that change what is measured, not only how it is judged."""
        return {key: value for key, value in self.options.items() if key not in _JUDGING}


def _servers(args: argparse.Namespace) -> tuple[ServedArm, ...]:
    servers = parse_servers(args.off, args.on or ())
    if args.api_key is not None and not servers:
        raise OptionError("--api-key is for the servers of --off and --on")
    for option in OPTIONS if servers else ():
        if option.key in _STARTING and getattr(args, option.key) != option.default:
            raise OptionError(
                f"{option.flag} is for engines that are started here; --off and --on name servers "
                "that others started"
            )
    return servers


def _loads(args: argparse.Namespace) -> tuple[Load, ...]:
    is_rate = args.rate is not None
    flag, text = ("--rate", args.rate) if is_rate else ("--concurrency", args.concurrency)
    try:
        values = [float(each) for each in text.split(",")]
    except ValueError:
        values = []
    if not values or not all(0 < each < 1e6 and (is_rate or each.is_integer()) for each in values):
        raise OptionError(f"{flag} {text!r} is no list of numbers above 0; write e.g. 1,4,16")
    if len(set(values)) < len(values):
        raise OptionError(f"{flag} {text!r} names a load twice")
    return tuple(Load(rate=each) if is_rate else Load(int(each)) for each in values)


def _choices(what: str, text: str | None, valid: tuple[str, ...]) -> tuple[str, ...]:
    chosen = tuple(dict.fromkeys(each.strip() for each in (text or "").split(",") if each.strip()))
    for each in chosen:
        if each not in valid:
            raise unknown_choice(what, each, valid)
    return chosen
