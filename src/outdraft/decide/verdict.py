"""The verdict: measured ratios and texts decide, checks only explain."""

from dataclasses import dataclass

from outdraft.decide.checks import Thresholds, run_checks
from outdraft.decide.evidence import Evidence
from outdraft.decide.texts import TextFinding, counts_text, judge_texts
from outdraft.plan.findings import Check
from outdraft.stats.ratios import Ratio
from outdraft.stats.sequential import Zone, zone

SHIP, DONT_SHIP, SHIP_FOR, INCONCLUSIVE = "SHIP", "DON'T SHIP", "SHIP FOR", "INCONCLUSIVE"
DEFAULT_MARGIN = 0.01  # a smaller difference counts as no difference


@dataclass(frozen=True, slots=True)
class Verdict:
    decision: str
    ship_for: tuple[str, ...]  # the parts of the traffic that win, if not all do
    reasons: tuple[str, ...]
    checks: tuple[Check, ...]

    @property
    def label(self) -> str:
        """The decision, with the parts of the traffic that it holds for."""
        return f"{self.decision} {', '.join(self.ship_for)}".rstrip()


def decide(
    evidence: Evidence, *, thresholds: Thresholds | None = None, margin: float = DEFAULT_MARGIN
) -> Verdict:
    """An interval has to lie `margin` or more away from 1; the noise floor is the least margin.
    Whatever the speed, an arm whose texts are clearly not the baseline's is not shipped."""
    checks = tuple(run_checks(evidence, thresholds or Thresholds()))
    decision, ship_for, reasons = _decide(evidence, max(margin, evidence.noise_floor))
    ships = decision in (SHIP, SHIP_FOR)
    about_texts = _about_texts(evidence, ships=ships)
    finding = finding_on(evidence) if evidence.is_valid else TextFinding.NONE
    if finding is TextFinding.OTHER:
        decision, ship_for, reasons = DONT_SHIP, (), [*about_texts, *reasons]
    elif finding is TextFinding.DOUBTFUL and ships:
        decision, ship_for, reasons = INCONCLUSIVE, (), [*about_texts, *reasons]
    else:
        reasons += about_texts
    return Verdict(decision, ship_for, (*reasons, *_remarks(evidence)), checks)


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


def _decide(evidence: Evidence, margin: float) -> tuple[str, tuple[str, ...], list[str]]:
    """The decision, the parts of the traffic to ship for, and the reasons."""
    main, tail = evidence.e2e, evidence.p99
    if not evidence.is_valid:
        # Some of these problems are remarks: not each of them made the run invalid.
        return INCONCLUSIVE, (), ["the run is invalid and proves nothing", *evidence.problems]
    if main is None or main.low is None:
        count = 0 if main is None else main.num_blocks
        reason = f"too little was measured for an interval ({count} blocks)"
        return INCONCLUSIVE, (), [reason + _more(evidence)]
    whole = zone(main, margin)
    server = _zone_of_server(evidence, margin)
    parts = evidence.parts
    winners = tuple(name for name in parts if zone(parts[name], margin) is Zone.WIN)
    losers = tuple(name for name in parts if zone(parts[name], margin) is Zone.LOSE)
    reasons = [_sentence("requests end to end", main)]
    tail_loses = tail is not None and zone(tail, margin) is Zone.LOSE
    if tail is not None and tail_loses:
        reasons.append(_sentence("P99 end to end", tail))
    total = None if evidence.total is None or evidence.total.low is None else evidence.total
    total_loses = total is not None and zone(total, margin) is Zone.LOSE
    if total is not None and (_differ(main, total) or (total_loses and whole is Zone.WIN)):
        reasons.append(_sentence("all requests' seconds together", total))
    reasons += [_sentence(name, parts[name]) for name in (*winners, *losers)]
    if evidence.throughput is not None and server not in (None, whole):
        reasons.append(_sentence("throughput", evidence.throughput))
        reasons += _disagreement(main, evidence.throughput)
    if winners and losers:
        return SHIP_FOR, _without_overlap(winners, losers), reasons
    if server is Zone.LOSE and not evidence.has_idle_slots:
        loss = (
            f"with {evidence.concurrency} at a time the server writes clearly less: that is a loss"
        )
        return DONT_SHIP, (), [*reasons, loss]
    must_win = evidence.has_idle_slots and server is not None
    if (whole is Zone.WIN or winners) and must_win and server is not Zone.WIN:
        both = f"with {evidence.concurrency} at a time, throughput must clearly win too"
        return INCONCLUSIVE, (), [*reasons, f"{both}: requests may have had idle neighbours"]
    if whole is Zone.WIN and (tail_loses or losers or total_loses):
        part = "a part of the traffic" if losers else "the sum of their times"
        who = "the tail" if tail_loses else part
        apart = f"requests gain on average and {who} loses: measure the parts of this traffic apart"
        return INCONCLUSIVE, (), [*reasons, apart]
    if whole is Zone.WIN:
        return SHIP, (), reasons
    if winners:
        return SHIP_FOR, winners, reasons
    if whole is Zone.LOSE:
        return DONT_SHIP, (), reasons
    percent = f"{100 * margin:.3g} %"
    unclear = f"not clear: the interval is neither beyond nor within {percent} of 1"
    tie = f"no difference of more than {percent} either way"
    return INCONCLUSIVE, (), [*reasons, tie if whole is Zone.TIE else unclear + _more(evidence)]


def _zone_of_server(evidence: Evidence, margin: float) -> Zone | None:
    """Where the throughput lies, if it says more than times do: where several run at a time. If
    slots were idle towards the end of a block, a faster arm's were idle earlier: its last requests
    had the machine for themselves, which flatters their times, and throughput must win too. Where
    all slots were busy times are enough to win, and a loss of throughput is a loss."""
    ratio = evidence.throughput if (evidence.concurrency or 1) > 1 else None
    return None if ratio is None or ratio.low is None else zone(ratio, margin)


def _disagreement(times: Ratio, throughput: Ratio) -> list[str]:
    """Why the two differ by more than chance, if they do."""
    if not _differ(times, throughput):
        return []
    return [
        "the two differ because throughput counts every token and every second, and the speedup of "
        "requests is that of a typical one: each counts the same, however long its answer, and the "
        "slowest and fastest 5 % are left out"
    ]


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
    interval = "" if ratio.low is None else f" [{ratio.low:.2f}, {ratio.high:.2f}]"
    return (
        f"{what}: {times:.2f} times {'faster' if is_faster else 'slower'}, "
        f"speedup {ratio.estimate:.2f}{interval}, n={ratio.num_pairs}"
    )


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
