"""Limits of draft lengths that an operator sets while the server runs. No text changes by them.

They come on top of what the server was started with, and of what a request asks for: a limit never
makes a draft longer.
"""

from itertools import pairwise
from typing import Any

from outdraft.engine.draft_lengths import Limits
from outdraft.engine.engine import Engine
from outdraft.server.protocol import DraftLimits
from outdraft.server.refusal import Refusal
from outdraft.speculation import MAX_K, Schedule, Speculation
from outdraft.workload.temperatures import BANDS, band_limits

MAX_RUNNING = 1 << 20


def with_limits(body: DraftLimits, speculation: Speculation, limits: Limits) -> Limits:
    """As the engine takes them, after others."""
    bands = tuple(band_limits(band) for band in dict.fromkeys(body.temperatures))
    return limits.followed_by(limits_of(body, speculation), bands)


def limits_of(body: DraftLimits, speculation: Speculation) -> Schedule:
    """By running texts; empty where they are taken back."""
    if speculation.is_off:
        raise Refusal(400, "this server runs without speculation", param="body")
    if len(body.model_fields_set & {"max_k", "schedule"}) != 1:
        raise Refusal(400, "max_k: give either max_k or schedule", param="max_k")
    if "max_k" in body.model_fields_set:
        return () if body.max_k is None else ((1, MAX_RUNNING, body.max_k),)
    starts = [start for start, _ in body.schedule or ()]
    if not starts or starts[0] != 1 or any(a >= b for a, b in pairwise([*starts, MAX_RUNNING])):
        words = "schedule: entries are [running, k], the first from 1 on, then ascending"
        raise Refusal(400, f"{words}, got {body.schedule!r:.80}", param="schedule")
    ks = [k for _, k in body.schedule or ()]
    if not all(0 <= k <= MAX_K for k in ks):
        raise Refusal(400, f"schedule: k is between 0 and {MAX_K}", param="schedule")
    ends = [*(start - 1 for start in starts[1:]), MAX_RUNNING]
    return tuple(zip(starts, ends, ks, strict=True))


def shown(engine: Engine, canary_share: float) -> dict[str, Any]:
    """What the server was started with, and the limits as they are set now."""
    speculation, limits = engine.speculation, engine.limits.schedule
    return {
        "method": speculation.method,
        "k": 0 if speculation.is_off else speculation.k,
        "schedule": [list(entry) for entry in speculation.schedule],
        "limits": [[start, k] for start, _, k in limits],
        "max_k": limits[0][2] if len(limits) == 1 else None,
        "temperatures": [band for band in BANDS if band_limits(band) in engine.limits.temperatures],
        "canary_share": canary_share,
    }
