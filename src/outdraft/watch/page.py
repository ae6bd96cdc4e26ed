"""The live page of `--ui`, from a snapshot and the trail of earlier ones. Pure; `site` serves."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files as resources

from outdraft.report.frame import framed
from outdraft.report.layout import lead, nothing, scrolled, table, two_lines
from outdraft.report.markup import Child, Markup, join, tag
from outdraft.report.numbers import UNKNOWN, milliseconds, percent, rate, share, times
from outdraft.report.theme import stylesheet
from outdraft.watch.charts import charts
from outdraft.watch.figures import figure_tables
from outdraft.watch.findings import Action, Alarm
from outdraft.watch.snapshot import ReplicaState, ReplicaView, Snapshot
from outdraft.watch.trail import Trail
from outdraft.watch.words import (
    advice_texts,
    advice_words,
    ago,
    alarm_title,
    clock,
    count_words,
    interval_words,
    is_calm,
    lost_words,
    name_of_view,
    one_line,
)

_MOST_NOTICES = 40


def _read(name: str) -> str:
    return resources("outdraft.watch").joinpath(name).read_text(encoding="utf-8")


_FOOTER = (
    ". The same figures for machines: ",
    tag("a", "metrics", href="metrics"),
    ", ",
    tag("a", "snapshot.json", href="snapshot.json"),
    ".",
)
_SECTIONS = {
    "alarms": "Alarms",
    "time": "Over time",
    "replicas": "Replicas",
    "figures": "Figures",
    "notices": "What happened",
}


def watch_page(snapshot: Snapshot, trail: Trail, refresh_s: float) -> str:
    words = advice_words(snapshot.fleet)
    bodies = {
        "alarms": _alarms(snapshot),
        "time": charts(trail, _by_interest(snapshot)),
        "replicas": _replicas(snapshot),
        "figures": figure_tables(snapshot),
        "notices": _notices(snapshot),
    }
    seconds = f"{max(refresh_s, 1):.0f}"
    what = (
        tag("span", count_words(snapshot)),
        tag("span", f"last {ago(snapshot.window_s)}"),
        tag("time", clock(snapshot.at)),
    )
    return framed(
        {
            "reload": tag("noscript", tag("meta", http_equiv="refresh", content=seconds)),
            "title": f"{words} · outdraft watch",
            "style": Markup(stylesheet() + _read("watch.css")),
            "script": tag("script", src="watch.js", defer=True, data_seconds=seconds),
            "first": "advice",
            "kind": "watch",
            "what": [
                tag("p", what, class_="what", id="what"),
                tag("p", class_="lost", id="lost", role="status"),
            ],
            "card": _card(snapshot),
            "links": [tag("a", title, href=f"#{key}") for key, title in _SECTIONS.items()],
            "sections": [_section(key, bodies[key]) for key in _SECTIONS],
            "footer": _FOOTER,
        }
    )


def script() -> str:
    return _read("watch.js")


def _by_interest(snapshot: Snapshot) -> list[str]:
    return [view.name for view in sorted(snapshot.replicas, key=is_calm)]


def _section(key: str, body: Markup) -> Markup:
    heading = tag("h2", _SECTIONS[key], id=f"{key}-title")
    return tag("section", heading, body, id=key, aria_labelledby=f"{key}-title")


def _card(snapshot: Snapshot) -> Markup:
    fleet, advice = snapshot.fleet, snapshot.fleet.advice
    texts = advice_texts(fleet)
    since = "" if advice is None else f" For {ago(snapshot.at - advice.since)}."
    reason = "Nothing is advised yet." if advice is None else f"{_sentence(advice.reason)}{since}"
    tiles = [
        tag("div", tag("dt", name), tag("dd", tag("b", value), tag("span", small)))
        for name, value, small in _tiles(fleet)
    ]
    return tag(
        "section",
        tag(
            "div",
            tag("p", tag("span", texts["sign"], class_="sign", aria_hidden="true"),
                advice_words(fleet), class_="decision"),
            tag("h1", texts["headline"], id="advice-title"),
            tag("p", reason, class_="under"),
            class_="banner",
        ),
        tag("dl", tiles, class_="tiles") if tiles else None,
        tag("div", _why(fleet), _next(snapshot, texts["next"]), class_="columns"),
        id="advice",
        class_=f"card {texts['class']}",
        aria_labelledby="advice-title",
    )  # fmt: skip


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:].rstrip('.')}."


def _with_code(words: str) -> list[Child]:
    """What stands in backticks is a command or a flag."""
    parts = words.split("`")
    return [tag("code", each) if at % 2 else each for at, each in enumerate(parts)]


def _tiles(fleet: ReplicaView) -> Iterator[tuple[str, Child, str]]:
    """(name, value, small print)"""
    benefit, window = fleet.benefit, fleet.window
    if benefit is not None:
        value = [times(benefit.estimate), tag("small", interval_words(benefit))]
        yield "net benefit", value, f"{benefit.source.words}, 95\N{NO-BREAK SPACE}% interval"
    if window is None:
        return
    if window.acceptance_rate is not None:
        small = f"acceptance length {share(window.acceptance_length)}"
        if (of_requests := window.acceptance_of_requests) is not None:
            small += f", of requests P10 {share(of_requests.p10)}, P90 {share(of_requests.p90)}"
        yield "acceptance rate", share(window.acceptance_rate), small
    if (tpot := window.times.get("tpot")) is not None and tpot.p50 is not None:
        most = UNKNOWN if tpot.p99 is None else milliseconds(1000 * tpot.p99)
        value = [milliseconds(1000 * tpot.p50), tag("small", "ms")]
        yield "time per token, median", value, f"P99 {most} ms, {tpot.count:,.0f} requests"
    if window.tokens_per_s is not None:
        running = "" if window.running is None else f"{rate(window.running)} requests at a time"
        yield "tokens per second", rate(window.tokens_per_s), running


def _why(fleet: ReplicaView) -> Markup:
    points: list[str] = []
    if (benefit := fleet.benefit) is not None:
        measured = f"Net benefit {times(benefit.estimate)} {interval_words(benefit)}"
        points.append(f"{measured} {benefit.source.words}; 1 is break-even.")
        points.append(f"Assumed: {benefit.assumes.rstrip('.')}.")
    points += [
        f"{times(part.estimate)} {interval_words(part)} for {part.part}." for part in fleet.parts
    ]
    if fleet.advice is not None and (lost := lost_words(fleet.advice)):
        points.append(lost)
    points = points or [f"No net benefit is known: {advice_texts(fleet)['headline'].lower()}."]
    return tag("div", tag("h2", "Why"), tag("ul", [tag("li", each) for each in points]))


def _next(snapshot: Snapshot, words: str) -> Markup:
    others = [
        tag("li", f"{name_of_view(view)}: ", tag("b", advice_words(view)))
        for view in snapshot.replicas
        if view.advice is not None and view.advice.action is not Action.KEEP
    ]
    first = snapshot.alarms[:1]
    return tag(
        "div",
        tag("h2", "What to do next"),
        [tag("p", _with_code(_sentence(alarm.advice)), " ", tag("a", "Why", href="#alarms"))
         for alarm in first],
        tag("p", _with_code(words)) if not first or snapshot.fleet.advice is not None else None,
        tag("ul", others) if others else None,
    )  # fmt: skip


def _alarms(snapshot: Snapshot) -> Markup:
    if not snapshot.alarms:
        return lead("No alarm stands.")
    return join([_alarm(alarm, snapshot.at) for alarm in snapshot.alarms])


def _alarm(alarm: Alarm, now: float) -> Markup:
    name = alarm_title(alarm.kind)
    who = alarm.replica or "all replicas"
    return tag(
        "div",
        tag("h3", f"{name}, {who}, for {ago(now - alarm.since)}"),
        tag("p", _sentence(alarm.evidence)),
        tag("p", tag("b", "Next: "), _with_code(alarm.advice)),
        scrolled(tag("code", alarm.command), f"command for {name}"),
        class_="alarm",
    )


def _replicas(snapshot: Snapshot) -> Markup:
    if not snapshot.replicas:
        return nothing("No replica is known yet.")
    head = ("replica", "advice", "net benefit", "acceptance", "tokens per round", "TPOT ms P50",
            "P99", "tokens/s", "running", "KV cache")  # fmt: skip
    rows = [_row(view) for view in sorted(snapshot.replicas, key=is_calm)]
    return table(head, rows, "table of replicas", {1: "label"})


def _row(view: ReplicaView) -> tuple[Child, ...]:
    benefit, window = view.benefit, view.window
    what = " ".join(each for each in (view.engine, view.version, view.model) if each)
    state = "fail" if view.state is ReplicaState.DOWN else "ok" if is_calm(view) else "warn"
    sign = {"fail": "✕", "ok": "·" if view.advice is None else "✓", "warn": "!"}[state]
    advice = tag("span", tag("span", sign, aria_hidden="true"), advice_words(view),
                 class_=f"state {state}")  # fmt: skip
    tpot = None if window is None else window.times.get("tpot")
    points = (None, None) if tpot is None else (tpot.p50, tpot.p99)
    typical: Child = UNKNOWN if points[0] is None else milliseconds(1000 * points[0])
    if tpot is None and window is not None and window.seconds_per_token is not None:
        typical = two_lines(milliseconds(1000 * window.seconds_per_token), "mean")
    figures: tuple[Child, ...] = (UNKNOWN,) * 5
    if window is not None:
        figures = (
            share(window.acceptance_rate), share(window.tokens_per_round),
            rate(window.tokens_per_s), rate(window.running), percent(window.kv_usage),
        )  # fmt: skip
    return (
        two_lines(_short(view.name), what),
        [advice, two_lines(None, view.reason) if view.reason else None],
        two_lines(times(None if benefit is None else benefit.estimate),
                  None if benefit is None else interval_words(benefit)),
        *figures[:2],
        typical,
        UNKNOWN if points[1] is None else milliseconds(1000 * points[1]),
        *figures[2:],
    )  # fmt: skip


def _short(name: str) -> str:
    """Of a replica, for a narrow column."""
    return one_line(name).removeprefix("http://")


def _notices(snapshot: Snapshot) -> Markup:
    if not snapshot.notices:
        return nothing("Nothing has happened yet.")
    rows = [
        (clock(notice.at), notice.kind, _short(notice.replica) or "all", notice.text)
        for notice in reversed(snapshot.notices[-_MOST_NOTICES:])
    ]
    kinds = {0: "short", 1: "short", 2: "label", 3: "words"}
    return table(("time", "what", "replica", "in words"), rows, "table of what happened", kinds)
