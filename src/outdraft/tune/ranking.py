"""Which proposers are tried first where there is not time for all. Pure."""

from collections.abc import Mapping, Sequence

from outdraft.speculation import METHODS, Speculation
from outdraft.tune.arm import by_proposer, name_of, proposer_name
from outdraft.tune.race import Standing


def rank_proposers(arms: Sequence[Speculation], earlier: Sequence[Standing]) -> tuple[str, ...]:
    """Their names. By the first load that predicted anything; before that one of every method, with
    a draft before those without: as a rule they gain more, and a quantized draft no less."""
    proposers = by_proposer(arms)
    first = next((each.predicted for each in earlier if each.predicted), None)
    if first is not None:
        best = {name: _best(members, first) for name, members in proposers.items()}
        return tuple(sorted(proposers, key=lambda name: -best[name]))
    by_method: dict[str, list[str]] = {}
    for name, members in proposers.items():
        by_method.setdefault(members[0].method, []).insert(0, name)
    return tuple(
        sorted(
            proposers,
            key=lambda name: _place(name, proposers[name][0].method, by_method),
        )
    )


def _best(members: Sequence[Speculation], predicted: Mapping[str, float]) -> float:
    return max(predicted.get(name_of(arm), 0.0) for arm in members)


def _place(name: str, method: str, by_method: Mapping[str, Sequence[str]]) -> tuple[int, int]:
    return by_method[method].index(name), -METHODS.index(method)


def by_rank(arms: Sequence[Speculation], ranked: Sequence[str]) -> list[Speculation]:
    """Arms whose proposers are ranked first, first; off and others keep their place at the end."""
    place = {name: at for at, name in enumerate(ranked)}
    return sorted(arms, key=lambda arm: place.get(proposer_name(arm), len(place)))
