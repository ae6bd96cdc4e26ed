"""Which arms are searched: all combinations of the settings, less those that cannot run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from statistics import mode

from outdraft.backends.backend import Serving
from outdraft.catalog import drafts_for, file_beside, resolve
from outdraft.errors import OptionError, OutdraftError, PairingError
from outdraft.modelspec import ModelSpec
from outdraft.modelspec.head import draft_method
from outdraft.modelspec.mtp import num_mtp_layers
from outdraft.plan import PlanSettings, find_model, plan_memory
from outdraft.plan.devices import Devices
from outdraft.plan.plan import Plan
from outdraft.plan.sizes import active_parameters
from outdraft.speculation import LOOKED_UP, MAX_K, WITH_DRAFT, Speculation
from outdraft.tune.arm import name_of, proposer_name
from outdraft.tune.results import MemoryResult, Pruned
from outdraft.whole_file import read_json

_LEAST_SEQUENCES = 1.0  # full-length texts that must fit at once


@dataclass(frozen=True, slots=True)
class Space:
    """What is combined."""

    methods: tuple[str, ...]  # (): all that the engine has
    ks: tuple[int, ...]
    drafts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # that a method can use
    quantizations: tuple[str, ...] = ("none",)  # of the draft
    rules: tuple[str, ...] = ("coupled",)
    head_devices: tuple[int | None, ...] = (None,)  # how many a head may run on


def enumerate_arms(
    space: Space, why_not: Callable[[Speculation], str | None]
) -> tuple[list[Speculation], list[Pruned]]:
    """Every arm but off, shortest drafts first, and what was left out with the reason. `why_not`
    says why a proposer cannot be tried (the engine lacks it, it does not fit, …), or None."""
    arms: list[Speculation] = []
    pruned: list[Pruned] = []
    for method in [each for each in space.methods if each != "off"]:
        has_draft = method in WITH_DRAFT
        drafts = space.drafts.get(method, ()) if has_draft else (None,)
        if method == "auto":  # one arm: draft lengths, and whose drafts, are its own business
            arm = Speculation(method)
            if reason := why_not(arm):
                pruned.append(Pruned(method, reason))
            else:
                arms.append(arm)
            continue
        if not drafts:
            pruned.append(Pruned(method, _no_draft(method, space.drafts)))
        for draft, quantization, rule, devices in product(
            drafts,
            space.quantizations if has_draft else ("none",),
            space.rules,
            space.head_devices if method == "eagle" else (None,),
        ):
            own = [
                Speculation(
                    method, k, draft, quantization, rule, draft_tensor_parallel_size=devices
                )
                for k in space.ks
            ]
            if reason := why_not(own[-1]):
                pruned.append(Pruned(proposer_name(own[-1]), reason))
            else:
                arms += own
    names = [name_of(arm) for arm in arms]
    if len(set(names)) < len(names):
        raise OptionError(f"two drafts have the same name in {mode(names)!r}; rename one")
    return arms, pruned


def drafts_by_method(target: str, named: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """The drafts that were named, else those that ship for the target."""
    drafts: dict[str, list[str]] = {method: [] for method in WITH_DRAFT}
    if len(set(named)) < len(named):
        raise OptionError(f"--draft {mode(named)} is given twice")
    for draft in named or drafts_for(target):
        drafts[draft_method(resolve(draft).path) or "draft_model"].append(draft)
    return {method: tuple(each) for method, each in drafts.items()}


def _no_draft(method: str, drafts: Mapping[str, tuple[str, ...]]) -> str:
    named = [draft for each in drafts.values() for draft in each]
    kind = "model" if method == "draft_model" else "head"
    lacking = f"no {kind} among the drafts ({', '.join(named)})" if named else "no draft for it"
    return f"{lacking}; name one with --draft"


@cache
def mtp_layers(target: str) -> int | None:
    """Layers for multi-token prediction in the target's files; None where its config.json cannot be
    read here."""
    try:
        config = file_beside(target, "config.json")
        return None if config is None else num_mtp_layers(read_json(config))
    except OutdraftError:
        return None


def head_devices(*, is_supported: bool, target_devices: int) -> tuple[int | None, ...]:
    """A head may run on one device or on all of its target's; None leaves it to the engine."""
    return (1, target_devices) if is_supported and target_devices > 1 else (None,)


def parse_ks(text: str) -> tuple[int, ...]:
    """`2..8`, `3`, `2,4,8` → draft lengths."""
    try:
        parts = [part.partition("..") for part in text.split(",")]
        ends = [(int(low), int(high if dots else low)) for low, dots, high in parts]
    except ValueError:
        ends = []
    if not ends or not all(1 <= low <= high <= MAX_K for low, high in ends):
        raise OptionError(f"--k {text!r}: draft lengths are 1 to {MAX_K}; write e.g. 2..8 or 2,4,6")
    return tuple(sorted({k for low, high in ends for k in range(low, high + 1)}))


def spread_ks(ks: Sequence[int], at_most: int) -> tuple[int, ...]:
    """At most so many of them, evenly spread, the shortest and the longest included."""
    if len(ks) <= at_most:
        return tuple(ks)
    return tuple(ks[round(i * (len(ks) - 1) / (at_most - 1))] for i in range(at_most))


def pruned_ks(ks: Sequence[int], tried: Sequence[int]) -> list[Pruned]:
    """What `spread_ks` left out, for the report."""
    left_out = ", ".join(str(k) for k in ks if k not in tried)
    only = ", ".join(map(str, tried))
    reason = f"the engine is started anew for each draft length, so only {only} are tried"
    return [Pruned(f"k={left_out}", reason)] if left_out else []


@dataclass(frozen=True, slots=True)
class Pruner:
    """What the plan says of a proposer before any engine is started."""

    serving: Serving
    devices: Devices | None

    def unfit(self, proposer: Speculation) -> str | None:
        """Why the proposer cannot run; None where it can, or where the plan cannot say."""
        if proposer.method in LOOKED_UP:
            return None
        if proposer.method == "mtp" and not proposer.draft and mtp_layers(self.serving.target) == 0:
            return (
                f"{self.serving.target} has no layers for multi-token prediction: its config.json "
                "names none"
            )
        try:
            plan = _plan(self.serving, self.devices, proposer)
        except PairingError as error:
            return str(error)
        room = None if plan is None else plan.room
        if room is None or (room.kv_cache_bytes > 0 and room.full_sequences >= _LEAST_SEQUENCES):
            return None
        if room.kv_cache_bytes <= 0:
            missing = -room.kv_cache_bytes / 1e9
            return f"it does not fit: {missing:.1f} GB are missing on the fullest device"
        left = f"{room.kv_tokens} tokens of KV cache"
        return (
            f"it leaves room for {left}, less than one text of full length; "
            f"--max-model-len {room.longest_text} fits"
        )

    def plan(self, speculation: Speculation) -> Plan | None:
        """None where the speculation cannot be planned."""
        try:
            return _plan(self.serving, self.devices, speculation)
        except OutdraftError:
            return None

    def num_parameters(self) -> int | None:
        """Of the target, that a token passes; None where its files cannot be read here."""
        try:
            return active_parameters(find_model(self.serving.target).spec)
        except OutdraftError:
            return None

    def memory(self, speculation: Speculation) -> MemoryResult | None:
        """For the report: where the memory goes with this speculation."""
        plan = self.plan(speculation)
        if plan is None:
            return None
        target, draft = plan.headline.target_bytes, plan.headline.draft_bytes
        if plan.room is None or plan.devices is None:
            note = "no device was named (--gpu), so only the weights are known"
            return MemoryResult(target, draft, 0, 0, 0, note)
        count, total = plan.devices.count, plan.devices.total_bytes
        kv = max(plan.room.kv_cache_bytes, 0) * count
        note = f"{plan.devices.name} × {count}; free is reserve and what stays unused"
        return MemoryResult(target, draft, kv, max(total - target - draft - kv, 0), total, note)


@cache
def _plan(serving: Serving, devices: Devices | None, speculation: Speculation) -> Plan | None:
    """None where a model's files cannot be read here: then the engine will say."""
    try:
        target = find_model(serving.target)
        draft = None
        if speculation.method in WITH_DRAFT:
            draft = find_model(speculation.draft or "")
    except OutdraftError:
        return None
    settings = PlanSettings(
        max_model_len=serving.max_model_len or target.spec.max_context,
        max_num_seqs=serving.max_num_seqs or 256,
        k=speculation.k,
        draft_ranks=speculation.draft_tensor_parallel_size,
        is_probabilistic=speculation.rule == "rejection",
    )
    quantization = None if speculation.quantization == "none" else speculation.quantization
    is_mtp = speculation.method == "mtp"
    if is_mtp and not (isinstance(target.spec, ModelSpec) and target.spec.mtp_layers):
        return None  # they are published apart, or not known here
    return plan_memory(
        target,
        draft,
        devices,
        settings,
        method="mtp" if is_mtp else None,
        draft_quantization=quantization,
    )
