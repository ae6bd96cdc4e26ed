"""Whether a deed has to wait for its fellows: others of the same engine and model. Pure.

One after the other, and the next when it helped: a deed that makes servers fail must not reach all
of them. Silence is never taken for a good sign.
"""

from __future__ import annotations

from collections.abc import Mapping

from outdraft.watch.actions import BARRED_S, OPEN, Deed, Deeds, DeedState, Kind
from outdraft.watch.history import Histories
from outdraft.watch.pasts import Pasts
from outdraft.watch.snapshot import ReplicaState
from outdraft.watch.weighing import kind_of

SETTLES_S = 60.0  # after a deed, before what a replica writes is taken for what the deed made of it
_LATELY_S = 300.0  # so recently one that works has written something
_LOOKS = 3


def must_wait(deeds: Deeds, wanted: Deed, fellows: Mapping[str, bool]) -> bool:
    """`fellows`: those that something was done to → whether they work since. Where nothing could be
    compared that has to do, and one that was helped may have died since."""
    if any(deeds.did_not_help(name, wanted.words, wanted.at) for name in fellows):
        return True
    for name, works in fellows.items():
        deed = deeds.newest.get(name)
        if deed is None or deed.state is DeedState.GONE:
            continue
        if deed.state in OPEN:
            return True
        if not works and wanted.at - deed.at < BARRED_S:
            return True
    return False


def fellows_of(
    wanted: Deed,
    deeds: Deeds,
    histories: Histories,
    states: Mapping[str, ReplicaState],
    pasts: Pasts,
    *,
    interval_s: float,
) -> dict[str, bool]:
    """Others of its kind that something was done to → whether they work: they answer, and wrote
    texts lately. For one that left the list another one may speak that joined since and works."""
    lately = wanted.at - max(_LATELY_S, _LOOKS * interval_s)

    def works(name: str, since: float) -> bool:
        is_up = states.get(name) is ReplicaState.UP
        return is_up and pasts.wrote_since(name, max(since + SETTLES_S, lately))

    def has_successor(deed: Deed) -> bool:
        return any(
            (history.started_at or 0.0) > deed.at
            and kind_of(history) == wanted.kind
            and works(name, deed.at)
            for name, history in histories.items()
        )

    found: dict[str, bool] = {}
    for name, deed in deeds.newest.items():
        if name == wanted.replica or _kind(deed, histories) != wanted.kind:
            continue
        has_left = states.get(name, ReplicaState.GONE) is ReplicaState.GONE
        found[name] = works(name, deed.at) or (has_left and has_successor(deed))
    return found


def _kind(deed: Deed, histories: Histories) -> Kind:
    """That of the deed: a history is forgotten sooner. An earlier version did not write it down."""
    is_unknown = deed.kind == (None, None) and deed.replica in histories
    return kind_of(histories[deed.replica]) if is_unknown else deed.kind
