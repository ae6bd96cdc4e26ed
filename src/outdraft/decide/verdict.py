"""The verdict: measured ratios and texts decide, checks only explain."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from outdraft.decide.checks import Thresholds, run_checks
from outdraft.decide.evidence import Evidence
from outdraft.decide.texts import TextFinding, counts_text, judge_texts
from outdraft.plan.findings import Check
from outdraft.stats.ratios import Ratio
from outdraft.stats.sequential import Zone, zone

SHIP, DONT_SHIP, SHIP_FOR, INCONCLUSIVE = "SHIP", "DON'T SHIP", "SHIP FOR", "INCONCLUSIVE"
DEFAULT_MARGIN = 0.01  # a smaller difference counts as no difference
_WHY_THEY_DIFFER = (
    "the two differ because throughput counts every token and every second, and the speedup of "
    "requests is that of a typical one: each counts the same, however long its answer, and the "
    "slowest and fastest 5 % are left out"
)
_ONLY_PARTS = (
    "the whole does not win: this is for those parts alone, and was measured with drafts for all"
)


@dataclass(frozen=True, slots=True)
class Verdict:
    decision: str
    ship_for: tuple[str, ...]  # the parts of the traffic that win, if not all do
    reasons: tuple[str, ...]
    checks: tuple[Check, ...]
    losers: tuple[str, ...] = ()  # the parts that lose, beside those of `ship_for`
    # Whether it ships for all of the traffic together. Verdicts of before do not say it.
    whole_wins: bool | None = None

    @property
    def label(self) -> str:
        """The decision, with the parts of the traffic that it holds for."""
        return f"{self.decision} {', '.join(self.ship_for)}".rstrip()

    def stopped(self, decision: str, reasons: tuple[str, ...]) -> Self:
        """With a decision that ships nothing."""
        return replace(
            self, decision=decision, reasons=reasons, ship_for=(), losers=(), whole_wins=False
        )


def decide(
    evidence: Evidence, *, thresholds: Thresholds | None = None, margin: float = DEFAULT_MARGIN
) -> Verdict:
    """An interval has to lie `margin` or more away from 1; the noise floor is the least margin.
    Whatever the speed, an arm whose texts are clearly not the baseline's is not shipped."""
    verdict = _decide(evidence, max(margin, evidence.noise_floor))
    ships = verdict.decision in (SHIP, SHIP_FOR)
    about_texts, reasons = tuple(_about_texts(evidence, ships=ships)), verdict.reasons
    finding = finding_on(evidence) if evidence.is_valid else TextFinding.NONE
    if finding is TextFinding.OTHER:
        verdict = verdict.stopped(DONT_SHIP, (*about_texts, *reasons))
    elif finding is TextFinding.DOUBTFUL and ships:
        verdict = verdict.stopped(INCONCLUSIVE, (*about_texts, *reasons))
    else:
        verdict = replace(verdict, reasons=(*reasons, *about_texts))
    return replace(
        verdict,
        reasons=(*verdict.reasons, *_remarks(evidence)),
        checks=tuple(run_checks(evidence, thresholds or Thresholds())),
    )


def wins_as_a_whole(evidence: Evidence, margin: float) -> bool:
    """All of the traffic together: requests clearly gain, and neither the slowest of them, nor all
    of their seconds, nor what the server writes clearly loses."""
    main, server = evidence.e2e, _zone_of_server(evidence, margin)
    may_be_idle = evidence.has_idle_slots and server not in (None, Zone.WIN)
    if main is None or zone(main, margin) is not Zone.WIN or server is Zone.LOSE or may_be_idle:
        return False
    return not (_loses(evidence.p99, margin) or _loses(evidence.total, margin))


def finding_on(evidence: Evidence) -> TextFinding:
    """What the texts say of the candidate. A lossy rule is known to change them."""
    if evidence.is_lossy:
        return TextFinding.NONE
    return judge_texts(evidence.texts, evidence.text_floor)


def _about_texts(evidence: Evidence, *, ships: bool) -> list[str]:
    texts, finding = evidence.texts, finding_on(evidence)
    counts = counts_text(texts, evidence.text_floor)
    if evidence.is_lossy:
        return ["texts differ by design (a lossy rule) and are not judged"]
    if texts is None:
        return [counts] if ships else []
    if not texts.first_differences:
        return []
    example = [] if texts.example is None else [f"e.g. {texts.example}"]
    if finding is TextFinding.OTHER:
        return [f"the candidate writes other texts: {counts}", *example]
    if finding is TextFinding.DOUBTFUL:
        return [f"the candidate may write other texts: {counts}", *example]
    return [f"{counts}; those that differ do so {texts.places}"]


def _decide(evidence: Evidence, margin: float) -> Verdict:
    """Without checks, texts and remarks."""
    main = evidence.e2e
    if not evidence.is_valid:
        # Some of these problems are remarks: not each of them made the run invalid.
        return _stop(INCONCLUSIVE, ["the run is invalid and proves nothing", *evidence.problems])
    if main is None or main.low is None:
        count = 0 if main is None else main.num_blocks
        reason = f"too little was measured for an interval ({count} blocks)"
        return _stop(INCONCLUSIVE, [reason + _more(evidence)])
    whole, server = zone(main, margin), _zone_of_server(evidence, margin)
    parts = evidence.parts
    faster = [name for name in parts if zone(parts[name], margin) is Zone.WIN]
    winners = tuple(name for name in faster if _is_own_gain(evidence, name, margin))
    losers = tuple(name for name in parts if zone(parts[name], margin) is Zone.LOSE)
    server_loses = server is Zone.LOSE and not evidence.has_idle_slots
    tail_loses, total_loses = (_loses(each, margin) for each in (evidence.p99, evidence.total))
    reasons = [_sentence("requests end to end", main)]
    if evidence.p99 is not None and tail_loses:
        reasons.append(_sentence("P99 end to end", evidence.p99))
    total = None if evidence.total is None or evidence.total.low is None else evidence.total
    if total is not None and (_differ(main, total) or (total_loses and whole is not Zone.LOSE)):
        reasons.append(_sentence("all requests' seconds together", total))
    reasons += [_sentence(name, parts[name]) for name in (*faster, *losers)]
    if whole is not Zone.WIN or losers:
        reasons += [_about_wait(evidence, name) for name in faster if name not in winners]
    if evidence.throughput is not None and server not in (None, whole):
        reasons.append(_sentence("throughput", evidence.throughput))
        reasons += [_WHY_THEY_DIFFER] if _differ(main, evidence.throughput) else []
    at_a_time = f"with {evidence.concurrency} at a time"
    must_win = evidence.has_idle_slots and server not in (None, Zone.WIN)
    if must_win and (whole is Zone.WIN or winners):
        both = f"{at_a_time}, throughput must clearly win too"
        reasons.append(f"{both}: requests may have had idle neighbours")
        return _stop(DONT_SHIP if whole is Zone.LOSE else INCONCLUSIVE, reasons)
    if server_loses:
        reasons.append(f"{at_a_time} the server writes clearly less: that is a loss")
    if winners and losers:
        chosen, wins = _without_overlap(winners, losers), wins_as_a_whole(evidence, margin)
        reasons += [] if wins else [_ONLY_PARTS]
        return Verdict(SHIP_FOR, chosen, tuple(reasons), (), losers, wins)
    if server_loses:
        return _stop(DONT_SHIP, reasons)
    if whole is Zone.WIN and (tail_loses or losers or total_loses):
        part = "a part of the traffic" if losers else "the sum of their times"
        who = "the tail" if tail_loses else part
        apart = f"requests gain on average and {who} loses: measure the parts of this traffic apart"
        return _stop(INCONCLUSIVE, [*reasons, apart])
    if whole is Zone.WIN:
        return Verdict(SHIP, (), tuple(reasons), (), (), whole_wins=True)
    if winners:
        return Verdict(SHIP_FOR, winners, (*reasons, _ONLY_PARTS), (), (), whole_wins=False)
    if whole is Zone.LOSE:
        return _stop(DONT_SHIP, reasons)
    percent = f"{100 * margin:.3g} %"
    unclear = f"not clear: the interval is neither beyond nor within {percent} of 1"
    tie = f"no difference of more than {percent} either way"
    return _stop(INCONCLUSIVE, [*reasons, tie if whole is Zone.TIE else unclear + _more(evidence)])


def _stop(decision: str, reasons: Sequence[str]) -> Verdict:
    return Verdict(decision, (), tuple(reasons), (), (), whole_wins=False)


def _loses(ratio: Ratio | None, margin: float) -> bool:
    return ratio is not None and zone(ratio, margin) is Zone.LOSE


def _is_own_gain(evidence: Evidence, name: str, margin: float) -> bool:
    """Whether a part that is faster end to end owes that to its own drafts. Where several run at a
    time it has to be faster in its time per token too: a slower server also gives each request a
    shorter wait, because the others come less often."""
    pace = evidence.tpot_by_part.get(name)
    is_alone = (evidence.concurrency or 1) == 1
    return is_alone or (pace is not None and zone(pace, margin) is Zone.WIN)


def _about_wait(evidence: Evidence, name: str) -> str:
    pace = evidence.tpot_by_part.get(name)
    figure = "not measured" if pace is None else f"speedup {pace.estimate:.2f}{_interval(pace)}"
    return (
        f"{name} is not clearly faster in its time per token ({figure}): it may only wait less "
        "because others are slowed, and that is no gain of its own"
    )


def _zone_of_server(evidence: Evidence, margin: float) -> Zone | None:
    """Where the throughput lies, if it says more than times do: where several run at a time. If
    slots were idle towards the end of a block, a faster arm's were idle earlier: its last requests
    had the machine for themselves, which flatters their times, and throughput must win too. Where
    all slots were busy times are enough to win, and a loss of throughput is a loss."""
    ratio = evidence.throughput if (evidence.concurrency or 1) > 1 else None
    return None if ratio is None or ratio.low is None else zone(ratio, margin)


def _differ(one: Ratio, other: Ratio) -> bool:
    """By more than chance: their intervals do not overlap."""
    spans = [(each.low or 0.0, each.high or 0.0) for each in (one, other)]
    return max(low for low, _ in spans) > min(high for _, high in spans)


def _without_overlap(winners: tuple[str, ...], losers: tuple[str, ...]) -> tuple[str, ...]:
    """Winners of the kind that loses too. If a temperature loses, every category contains some of
    its requests, so a category that wins is no traffic to ship for."""
    for kind in ("temperature", "category"):
        chosen = tuple(name for name in winners if name.startswith(kind))
        if chosen and any(name.startswith(kind) for name in losers):
            return chosen
    return winners


def _sentence(what: str, ratio: Ratio) -> str:
    is_faster = ratio.estimate >= 1
    times = ratio.estimate if is_faster else 1 / ratio.estimate
    return (
        f"{what}: {times:.2f} times {'faster' if is_faster else 'slower'}, "
        f"speedup {ratio.estimate:.2f}{_interval(ratio)}, n={ratio.num_pairs}"
    )


def _interval(ratio: Ratio) -> str:
    return "" if ratio.low is None else f" [{ratio.low:.2f}, {ratio.high:.2f}]"


def _more(evidence: Evidence) -> str:
    if evidence.more_requests is None:
        return ""
    return f"; about {evidence.more_requests} more requests would make it clear"


def _remarks(evidence: Evidence) -> list[str]:
    remarks = []
    if evidence.error_rate:
        remarks.append(f"{100 * evidence.error_rate:.2g} % of the requests failed and are left out")
    if evidence.is_valid:
        remarks += evidence.problems
        if evidence.e2e is not None and evidence.p99 is None:
            num_pairs = evidence.e2e.num_pairs
            remarks.append(f"the tail is not known: {num_pairs} pairs are too few for a P99")
    return remarks
