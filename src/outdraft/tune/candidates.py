"""Which speculations are worth a thought: all combinations, less those that cannot be. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from outdraft.errors import OptionError
from outdraft.speculation import WITH_DRAFT, Speculation
from outdraft.tune.arm import name_of, proposer_name
from outdraft.tune.results import Pruned


@dataclass(frozen=True, slots=True)
class Space:
    """What is searched over."""

    methods: tuple[str, ...]
    ks: tuple[int, ...]
    drafts: Mapping[str, tuple[str, ...]]  # method → drafts it can use
    quantizations: tuple[str, ...] = ("none",)  # of the draft
    rules: tuple[str, ...] = ("coupled",)
    draft_devices: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # method → how many


@dataclass(frozen=True, slots=True)
class Can:
    """What the engine can do of it."""

    methods: frozenset[str]
    rules: frozenset[str]
    quantizations: frozenset[str]


def enumerate_arms(
    space: Space, can: Can, unfit: Callable[[Speculation], str | None]
) -> tuple[list[Speculation], list[Pruned]]:
    """Every arm but off, shortest drafts first, and what was left out with the reason.

    `unfit` says why a proposer is not to be tried (it does not fit into memory, …), or None.
    """
    if not space.ks:
        raise OptionError("no draft length to try; give --k, e.g. 2..8")
    arms: list[Speculation] = []
    pruned: list[Pruned] = []
    for proposer in _proposers(space, pruned):
        name = proposer_name(proposer)
        reason = _not_able(proposer, can) or unfit(proposer)
        if reason:
            pruned.append(Pruned(name, reason))
            continue
        arms += [replace(proposer, k=k) for k in sorted(set(space.ks))]
    names = [name_of(arm) for arm in arms]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise OptionError(f"two drafts have the same name in {twice!r}; rename one")
    return arms, pruned


def _proposers(space: Space, pruned: list[Pruned]) -> list[Speculation]:
    largest = max(space.ks)
    found = []
    for method in space.methods:
        if method == "off":
            continue
        if method not in WITH_DRAFT:
            found += [Speculation(method, k=largest, rule=rule) for rule in space.rules]
            continue
        drafts = space.drafts.get(method, ())
        if not drafts:
            pruned.append(Pruned(method, "no draft for it; name one with --draft"))
        devices = space.draft_devices.get(method, (None,))
        found += [
            Speculation(
                method,
                k=largest,
                draft=draft,
                quantization=quantization,
                rule=rule,
                draft_tensor_parallel_size=count,
            )
            for draft, quantization, rule, count in product(
                drafts, space.quantizations, space.rules, devices
            )
        ]
    return found


def _not_able(proposer: Speculation, can: Can) -> str | None:
    wanted = (
        ("method", proposer.method, can.methods),
        ("verification rule", proposer.rule, can.rules),
        ("draft quantization", proposer.quantization, can.quantizations),
    )
    for what, value, able in wanted:
        if value not in able:
            return f"this engine has no {what} {value}; it has {', '.join(sorted(able))}"
    return None


def draft_devices(*, is_able: bool, target_devices: int) -> dict[str, tuple[int, ...]]:
    """A head may run on one device or on all of its target's; a draft model has no choice."""
    return {"eagle": (1, target_devices)} if is_able and target_devices > 1 else {}


def parse_ks(text: str) -> tuple[int, ...]:
    """`2..8`, `3`, `2,4,8` → draft lengths."""
    ks: set[int] = set()
    for part in text.split(","):
        low, dots, high = part.strip().partition("..")
        try:
            ks |= set(range(int(low), int(high if dots else low) + 1))
        except ValueError:
            ks = set()
            break
    if not ks or min(ks) < 1 or max(ks) > 64:
        raise OptionError(f"--k {text!r}: draft lengths are 1 to 64; write e.g. 2..8 or 2,4,6")
    return tuple(sorted(ks))


def spread_ks(ks: Sequence[int], at_most: int) -> tuple[int, ...]:
    """Some of them, the ends included: where each needs an engine of its own."""
    if len(ks) <= at_most:
        return tuple(ks)
    steps = [round(place * (len(ks) - 1) / (at_most - 1)) for place in range(at_most)]
    return tuple(ks[step] for step in steps)


def thinned(ks: Sequence[int], tried: Sequence[int]) -> list[Pruned]:
    """What `spread_ks` left out, for the report."""
    left = ", ".join(str(k) for k in ks if k not in tried)
    told = ", ".join(map(str, tried))
    reason = f"the engine is started anew for each draft length, so only {told} are tried"
    return [Pruned(f"k={left}", reason)] if left else []
