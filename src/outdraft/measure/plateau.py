"""The plateau of a block: the part in which as many requests run as its load names.

Requests that are all sent at once end at about the same time, so a block of its own never has a
steady load: at its end the slots of a faster server are idle first, and its last requests have the
machine for themselves. So *lead* requests go before those that count and *fillers* after them.
With several at a time, the leads fill all slots at once and end one after the other, because each
may write a little more than the one before. Fillers take every slot that comes free after the last
counted request was sent; they are abandoned when the last counted one has ended. Where requests
come by the clock, leads and fillers come at the same pace.

Leads are recorded, as warm-up and with the number of their block: their tokens are part of what
the server wrote on the plateau. Fillers are not. All functions here are pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from outdraft.loadgen.endpoint import Request
from outdraft.records import Record
from outdraft.workload.prompt import Planned

_FILLERS_PER_SLOT = 4  # answers of those that end early may be short


def num_spare(concurrency: int | None) -> int:
    """Requests that `surround` needs beside those that count."""
    return (1 + _FILLERS_PER_SLOT) * concurrency if concurrency and concurrency > 1 else 0


def surround(
    counted: Sequence[Request], spare: Sequence[Planned], concurrency: int | None
) -> list[Request]:
    """The requests of a block with leads before and fillers after them, made of `spare`. One
    request at a time needs neither. Leads have negative indices."""
    if not counted or concurrency is None or concurrency < 2:
        return list(counted)
    lead = [
        replace(
            counted[0],
            planned=replace(each, max_tokens=-(-each.max_tokens * (place + 1) // concurrency)),
            index=place - concurrency,
            is_warmup=True,
        )
        for place, each in enumerate(spare[:concurrency])
    ]
    fillers = [
        replace(counted[0], planned=each, index=len(counted) + place, is_filler=True)
        for place, each in enumerate(spare[concurrency:])
    ]
    return [*lead, *counted, *fillers]


def surround_in_time(
    counted: Sequence[Request], spare: Sequence[Planned], lead_ns: int
) -> list[Request]:
    """The same for requests that come by the clock: the first half of `spare`, or as many as come
    in `lead_ns`, before those that count, the other half after them."""
    times = [each.planned.offset_ns or 0 for each in counted]
    if len(times) < 2 or max(times) == min(times):
        return list(counted)
    gap = (max(times) - min(times)) / (len(times) - 1)
    half = len(spare) // 2
    lead, after = spare[: min(half, round(lead_ns / gap))], spare[half:]
    shift = round(len(lead) * gap) - min(times)
    end = max(times) + shift

    def at(offset_ns: float, planned: Planned) -> Planned:
        return replace(planned, offset_ns=round(offset_ns))

    leads = [
        replace(counted[0], planned=at(n * gap, each), index=n - len(lead), is_warmup=True)
        for n, each in enumerate(lead)
    ]
    shifted = [
        replace(each, planned=at(time + shift, each.planned))
        for each, time in zip(counted, times, strict=True)
    ]
    fillers = [
        replace(counted[0], planned=at(end + (n + 1) * gap, each), index=len(counted) + n,
                is_filler=True)
        for n, each in enumerate(after)
    ]  # fmt: skip
    return [*leads, *shifted, *fillers]


def is_lead(record: Record) -> bool:
    """Other requests of a warm-up belong to no block: they have the number -1."""
    return record.is_warmup and record.block >= 0


@dataclass(frozen=True, slots=True)
class Plateau:
    start_ns: int
    end_ns: int
    num_ended: int  # requests that ended on it

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.start_ns) / 1e9


def find_plateau(records: Sequence[Record]) -> Plateau | None:
    """Of one block of one arm: from the time the first counted request was due, and all leads had
    their first token, to the time the last counted one was due. None without leads, or where
    nothing ended meanwhile."""
    first_tokens = [each.first_ns for each in records if is_lead(each) and each.first_ns]
    due = [each.scheduled_ns for each in records if not each.is_warmup]
    if not first_tokens or not due:
        return None
    start, end = max(min(due), *first_tokens), max(due)
    num_ended = sum(each.ok and start < (each.last_ns or 0) <= end for each in records)
    return Plateau(start, end, num_ended) if num_ended and end > start else None


def tokens_between(records: Sequence[Record], start_ns: int, end_ns: int) -> float:
    """Tokens from `start_ns` until before `end_ns`: each answer's first at its time, the others
    spread evenly from there to its last."""
    total = 0.0
    for each in records:
        num, first, last = each.completion_tokens or 0, each.first_ns, each.last_ns
        if not each.ok or not num or first is None or last is None:
            continue
        has_first = start_ns <= first < end_ns
        share = float(has_first)
        if last > first:
            share = max(min(last, end_ns) - max(first, start_ns), 0) / (last - first)
        total += has_first + (num - 1) * share
    return total


def tokens_per_s(records: Sequence[Record]) -> float:
    """Of one block of one arm: on its plateau; without one, of the counted requests from the first
    to the end of the last."""
    if plateau := find_plateau(records):
        tokens = tokens_between(records, plateau.start_ns, plateau.end_ns)
        return tokens / plateau.seconds
    done = [each for each in records if each.ok and not each.is_warmup]
    tokens = sum(each.completion_tokens or 0 for each in done)
    return tokens / max(counted_ns(records), 1) * 1e9 if done else 0.0


def counted_ns(records: Sequence[Record]) -> int:
    """How long the counted requests of one block of one arm take, at the pace of its plateau;
    without one, from the time the first was due to the end of the last."""
    done = [each for each in records if each.ok and not each.is_warmup]
    if not done:
        return 0
    if plateau := find_plateau(records):
        return round((plateau.end_ns - plateau.start_ns) * len(done) / plateau.num_ended)
    due = [each.scheduled_ns for each in records if not each.is_warmup]
    return max(each.last_ns or 0 for each in done) - min(due)
