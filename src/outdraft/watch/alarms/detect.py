"""All detectors over all replicas. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from outdraft.watch.alarms.acceptance import (
    acceptance_collapsed,
    acceptance_decays,
    drafts_worthless,
    long_texts_collapse,
)
from outdraft.watch.alarms.deployment import deployment_step
from outdraft.watch.alarms.fellows import unlike_fellows
from outdraft.watch.alarms.past import Past
from outdraft.watch.alarms.serving import (
    kv_squeeze,
    nothing_proposed,
    tail_after_coming_on,
    tail_widened,
)
from outdraft.watch.alarms.words import KINDS
from outdraft.watch.findings import Alarm

_DETECTORS: Mapping[str, Callable[[Past, float], str | None]] = {
    detect.__name__: detect
    for detect in (
        drafts_worthless,
        acceptance_collapsed,
        acceptance_decays,
        deployment_step,
        long_texts_collapse,
        nothing_proposed,
        tail_widened,
        tail_after_coming_on,
        kv_squeeze,
    )
}
# Who drafts where that pays, and a little to try it, does so on purpose where it never does. It
# also chooses who proposes, and cheap drafts of which less is accepted may pay more. What it loses
# by a wrong choice is seen in times, and in the net benefit.
_NOT_WHERE_IT_CHOOSES = (
    "nothing_proposed",
    "drafts_worthless",
    "acceptance_collapsed",
    "acceptance_decays",
    "long_texts_collapse",
)
# The first explains the second, which is not said beside it.
_EXPLAINS = (
    ("acceptance_collapsed", "acceptance_decays"),
    ("drafts_worthless", "acceptance_decays"),
    ("tail_after_coming_on", "tail_widened"),
)


def find_alarms(pasts: Mapping[str, Past], now: float) -> tuple[Alarm, ...]:
    """What can be seen at `now`, the end of a minute. Whether it is new is not asked here."""
    found: dict[str, dict[str, str]] = {
        name: {
            kind: evidence
            for kind, detect in _DETECTORS.items()
            if not (past.drafts_as_it_pays and kind in _NOT_WHERE_IT_CHOOSES)
            and (evidence := detect(past, now)) is not None
        }
        for name, past in pasts.items()
    }
    for name, evidence in unlike_fellows(pasts, now).items():
        found[name]["unlike_fellows"] = evidence
    for kinds in found.values():
        for cause, effect in _EXPLAINS:
            if cause in kinds:
                kinds.pop(effect, None)
    return tuple(
        KINDS[kind].alarm(name, now, evidence, model=pasts[name].model, engine=pasts[name].engine)
        for name, kinds in found.items()
        for kind, evidence in kinds.items()
    )
