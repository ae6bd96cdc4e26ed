"""What a watch found, in words: the same in the terminal, on the page and in lines. Pure."""

from __future__ import annotations

import time
import tomllib
from collections.abc import Mapping
from importlib.resources import files as resources

from outdraft.report.numbers import duration
from outdraft.watch.alarms.words import KINDS
from outdraft.watch.findings import FLEET, Action, Advice, Benefit
from outdraft.watch.snapshot import ReplicaState, ReplicaView, Snapshot

TIMES = {"ttft": "TTFT", "tpot": "TPOT", "e2e": "e2e"}
_TEXTS: Mapping[str, Mapping[str, str]] = tomllib.loads(
    resources("outdraft.watch").joinpath("advice.toml").read_text("utf-8")
)
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def one_line(text: str) -> str:
    """Text from outside for a terminal: spaces for line ends, and no escape sequences."""
    return "".join(
        each if each.isprintable() else " " if each.isspace() else _REPLACEMENT for each in text
    )


def name_of_view(view: ReplicaView) -> str:
    return "all" if view.name == FLEET else one_line(view.name)


def clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at))


def ago(seconds: float) -> str:
    """How long something has lasted, in one unit or two: 40 s, 25 min, 2 h 5 min, 3 days."""
    if seconds >= 2 * 86_400:
        return f"{seconds / 86_400:.0f} days"
    if seconds >= 3600:
        return duration(60 * (seconds // 60)).removesuffix(" 0 min")
    return f"{seconds // 60:.0f} min" if seconds >= 60 else f"{max(seconds, 0):.0f} s"


def benefit_words(benefit: Benefit | None) -> str:
    if benefit is None:
        return "unknown"
    if benefit.low is None or benefit.high is None:
        return f"{benefit.estimate:.2f}x, {interval_words(benefit)}"
    return f"{benefit.estimate:.2f}x {interval_words(benefit)}"


def interval_words(benefit: Benefit) -> str:
    if benefit.is_of_little:
        return f"in {benefit.share:.0%} of the time alone"
    if benefit.low is None or benefit.high is None:
        return "no interval yet"
    return f"[{benefit.low:.2f}, {benefit.high:.2f}]"


def alarm_title(kind: str) -> str:
    """Of a kind that is not known any more, as in an old state, its name."""
    known = KINDS.get(kind)
    return kind.replace("_", " ") if known is None else known.title


def lost_words(advice: Advice) -> str:
    """What not following it costs, as a sentence; empty where that is not known."""
    parts = []
    if advice.lost_tokens_per_hour is not None:
        parts.append(f"{advice.lost_tokens_per_hour:,.0f} tokens")
    if advice.lost_gpu_seconds_per_hour is not None:
        parts.append(f"{duration(advice.lost_gpu_seconds_per_hour)} of GPU time")
    if advice.lost_money_per_hour is not None:
        parts.append(f"{advice.lost_money_per_hour:,.2f} in money")
    if not parts:
        return ""
    *most, last = parts
    words = f"{', '.join(most)} and {last}" if most else last
    if advice.action is Action.KEEP:
        return f"Turning it off would cost {words} an hour."
    return f"Left as it is, it costs {words} an hour."


def advice_words(view: ReplicaView) -> str:
    """What is advised, or why nothing is."""
    if view.advice is not None:
        return one_line(view.advice.words)
    if view.state is ReplicaState.DOWN:
        return "no answer"
    if view.state is not ReplicaState.UP:
        return str(view.state)
    if view.speculates is False:
        return "plain"
    return "no traffic" if is_idle(view) else "not clear yet"


def is_idle(view: ReplicaView) -> bool:
    return view.window is not None and not view.window.num_tokens


def advice_texts(view: ReplicaView) -> Mapping[str, str]:
    """`headline` and `next`, of what is advised or of why nothing is; `class` and `sign`."""
    if view.advice is not None:
        return _TEXTS[str(view.advice.action)]
    if view.benefit is None:
        is_plain = view.speculates is False
        return _TEXTS["plain" if is_plain else "idle" if is_idle(view) else "unknown"]
    return _TEXTS["early" if view.benefit.low is None else "unclear"]


def is_calm(view: ReplicaView) -> bool:
    """Nothing to do and nothing to look at."""
    is_kept = view.advice is None or view.advice.action is Action.KEEP
    return is_kept and not view.alarms and view.state is not ReplicaState.DOWN


def count_words(snapshot: Snapshot) -> str:
    """E.g. "5 replicas, 3 up"."""
    known = [view for view in snapshot.replicas if view.state is not ReplicaState.GONE]
    num_up = sum(view.state is ReplicaState.UP for view in known)
    noun = "replica" if len(known) == 1 else "replicas"
    return f"{len(known)} {noun}" + ("" if num_up == len(known) else f", {num_up} up")
