"""A fleet that everything to be shown occurs in: a server that gains, one that loses, a plain one,
one that is down and has a name with markup in it, one that is new."""

from __future__ import annotations

import math
from dataclasses import replace

from outdraft.watch.findings import FLEET, Action, Advice, Alarm, Benefit, Notice, Source
from outdraft.watch.snapshot import (
    Posting,
    Quantiles,
    ReplicaState,
    ReplicaView,
    Snapshot,
    WindowFigures,
)
from outdraft.watch.trail import Trail

AT = 1_700_000_000.0
ODD_NAME = 'http://<script>alert(1)</script>:1/"\\{}'
ODD_MODEL = "</style><script>document.title='owned'</script>\nnext \u2028 line"

_TIMES = {
    "ttft": Quantiles(900, 0.12, 0.05, 0.1, 0.2, 0.41),
    "tpot": Quantiles(880, 0.011, 0.007, 0.0105, 0.016, 0.033),
    "e2e": Quantiles(900, 2.1, 0.8, 1.9, 3.4, 6.2),
}
GAINS = WindowFigures(
    AT - 600, AT, 600.0, 900.0, 171_000.0, 0,
    tokens_per_s=285.0, requests_per_s=1.5, seconds_per_token=0.0108, acceptance_rate=0.71,
    acceptance_length=3.84, acceptance_by_position=(0.88, 0.74, 0.61, 0.5), mean_k=4.0,
    tokens_per_round=3.61, times=_TIMES,
    bands={"0": Quantiles(500, 0.78, 0.6, 0.8, 0.9, 0.95),
           "1+": Quantiles(400, 0.5, 0.2, 0.5, 0.7, 0.9)},
    acceptance_of_requests=Quantiles(900, 0.66, 0.3, 0.7, 0.8, 0.93),
    running=3.2, waiting=0.1, kv_usage=0.42, preemptions=0.0, prefix_hit_rate=0.33,
)  # fmt: skip
LOSES = replace(GAINS, acceptance_rate=0.12, acceptance_length=1.48, tokens_per_round=1.41,
                acceptance_by_position=(0.3, 0.1, 0.05, 0.02), seconds_per_token=0.0219,
                tokens_per_s=140.2, kv_usage=0.96, preemptions=14.0, running=17.4)  # fmt: skip
PLAIN = replace(GAINS, acceptance_rate=None, acceptance_length=None, acceptance_by_position=(),
                mean_k=None, tokens_per_round=None, bands={}, seconds_per_token=0.0191)  # fmt: skip


def benefit(estimate: float, low: float | None, high: float | None) -> Benefit:
    assumes = "the plain replicas have the same hardware and the same traffic"
    return Benefit(Source.CONTROL, estimate, low, high, AT - 600, AT, assumes, running=3.2)


GAIN, LOSS = benefit(1.76, 1.69, 1.84), benefit(0.87, 0.82, 0.93)
KEEP = Advice(Action.KEEP, "http://10.0.0.1:8000", AT - 7200, "drafts pay: 1.76x [1.69, 1.84]",
              benefit=GAIN)  # fmt: skip
OFF = Advice(Action.TURN_OFF, "http://10.0.0.2:8000", AT - 1500, "a loss for 25 minutes",
             benefit=LOSS, lost_tokens_per_hour=65_600.0, lost_gpu_seconds_per_hour=468.0,
             lost_money_per_hour=0.33)  # fmt: skip
ALARM = Alarm("drafts_worthless", "http://10.0.0.2:8000", AT - 1800,
              "a round emits 1.48 tokens (3.84 an hour ago)",
              "check that the draft still fits the model that is served",
              "outdraft bench http://10.0.0.2:8000 --requests 32")  # fmt: skip
REPLICAS = (
    ReplicaView("http://10.0.0.1:8000", ReplicaState.UP, "vllm", "meta-llama/Llama-3.1-8B", "0.14",
                speculates=True, window=GAINS, benefit=GAIN, advice=KEEP),
    ReplicaView("http://10.0.0.2:8000", ReplicaState.UP, "vllm", "meta-llama/Llama-3.1-8B", "0.14",
                speculates=True, window=LOSES, benefit=LOSS, alarms=(ALARM,), advice=OFF),
    ReplicaView("http://10.0.0.3:8000", ReplicaState.UP, "vllm", "meta-llama/Llama-3.1-8B", "0.14",
                speculates=False, window=PLAIN),
    ReplicaView(ODD_NAME, ReplicaState.DOWN, model=ODD_MODEL,
                reason="no answer within 4 s <b>bold</b>"),
    ReplicaView("http://10.0.0.5:8000", ReplicaState.NEW),
)  # fmt: skip
NOTICES = (
    Notice(AT - 7200, "replica", "http://10.0.0.1:8000", "came up"),
    Notice(AT - 1800, "alarm", "http://10.0.0.2:8000", ALARM.evidence),
    Notice(AT - 1500, "advice", "http://10.0.0.2:8000", "TURN OFF: a loss for 25 minutes"),
)


def sample_snapshot() -> Snapshot:
    fleet_benefit = benefit(1.21, 1.12, 1.31)
    fleet = ReplicaView(
        FLEET, ReplicaState.UP, speculates=True,
        window=replace(GAINS, tokens_per_s=710.2, acceptance_rate=0.43, acceptance_length=2.66),
        benefit=fleet_benefit, parts=(replace(LOSS, part="9 or more at a time"),),
        advice=Advice(Action.TURN_OFF_FOR, FLEET, AT - 1500, "a loss where many run",
                      part="9 or more at a time", benefit=fleet_benefit,
                      lost_tokens_per_hour=65_600.0),
    )  # fmt: skip
    return Snapshot(AT, AT - 86_400, 600.0, REPLICAS, fleet, NOTICES, Posting("http 401", 2))


def empty_snapshot() -> Snapshot:
    """Before the first look."""
    return Snapshot(AT, AT, 600.0, (), ReplicaView(FLEET, ReplicaState.NEW))


def sample_trail() -> Trail:
    """Two hours, a loss that begins half an hour ago, a gap in what is known."""
    trail, now = Trail(), sample_snapshot()
    for minute in range(-120, 1):
        bad = minute > -30
        figures = replace(LOSES if bad else GAINS, acceptance_rate=0.12 if bad else 0.7)
        second = replace(REPLICAS[1], window=figures, alarms=(ALARM,) if bad else ())
        value = 1.2 + 0.05 * math.sin(minute / 9) - (0.25 if bad else 0.0)
        known = None if -60 < minute < -50 else benefit(value, value - 0.08, value + 0.08)
        fleet = replace(now.fleet, benefit=known)
        trail.add(replace(now, at=AT + 60 * minute, replicas=(REPLICAS[0], second, *REPLICAS[2:]),
                          fleet=fleet))  # fmt: skip
    return trail
