"""Who drafts for whom in a step: one proposer at set lengths, or several that a controller chooses
from. No text depends on it."""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

import torch
from torch import Tensor

from outdraft.acceptance import Acceptance
from outdraft.engine.controller import (
    Candidate,
    Controller,
    LookupDraft,
    Outcome,
    StepTimes,
    Why,
    Wish,
)
from outdraft.engine.proposers.cached import CachedProposer
from outdraft.engine.proposers.proposer import (
    DraftRequest,
    Observation,
    Observer,
    Proposal,
    Proposer,
)
from outdraft.engine.sequence import Sequence
from outdraft.engine.step import Segment
from outdraft.speculation import LOOKED_UP

Attach = Callable[[Segment, list[int]], None]  # as much of a draft as there is room for


@dataclass(slots=True)
class Drafted:
    """What became of drafting in a step."""

    probs: Tensor | None = None  # (all drafts, V), where a proposer keeps them
    seconds: dict[str, float] = field(default_factory=dict)  # by proposer, and for planning
    segments: list[Segment] = field(default_factory=list)  # that could have got drafts


class Drafting(Protocol):
    @property
    def proposers(self) -> Mapping[str, Proposer]: ...

    @property
    def acceptance(self) -> Mapping[str, Acceptance]:
        """By proposer."""
        ...

    @property
    def chosen(self) -> Counter[tuple[str, int]]:
        """Rounds by proposer and draft length; "" and 0: none."""
        ...

    def propose(self, segments: Seq[Segment], rooms: Seq[int], attach: Attach) -> Drafted:
        """Drafts of at most so many tokens for each segment, which are attached to it."""
        ...

    def learn(self, drafted: Drafted, seconds: float) -> None:
        """After verification: the step took so many seconds in all."""
        ...

    def observe(self, observations: Callable[[], list[Observation]]) -> None:
        """Shows the target's hidden states of the step to those that read them."""
        ...

    def release(self, sequence: Sequence) -> None: ...

    def forget(self) -> None: ...


class _Proposers:
    """What both kinds have in common."""

    def __init__(self, proposers: Mapping[str, Proposer]) -> None:
        self.proposers = proposers
        self.acceptance = {name: Acceptance() for name in proposers}
        self.chosen: Counter[tuple[str, int]] = Counter()
        self._observers = [each for each in proposers.values() if isinstance(each, Observer)]

    def observe(self, observations: Callable[[], list[Observation]]) -> None:
        for each in self._observers:
            each.observe(observations())

    def learn(self, drafted: Drafted, seconds: float) -> None:
        for each in drafted.segments:
            name = each.proposer or ""
            self.chosen[name, len(each.drafts)] += 1
            if name:
                self.acceptance[name].record(len(each.drafts), each.num_accepted)

    def release(self, sequence: Sequence) -> None:
        for each in self.proposers.values():
            each.release(sequence)

    def forget(self) -> None:
        for each in self.proposers.values():
            each.forget()

    def _ask(self, name: str, asked: Seq[DraftRequest], drafted: Drafted) -> list[Proposal]:
        """Drafts of one proposer, timed."""
        began = time.perf_counter()
        proposals = self.proposers[name].propose(asked)
        drafted.seconds[name] = drafted.seconds.get(name, 0.0) + time.perf_counter() - began
        return proposals

    @staticmethod
    def _attach(segment: Segment, name: str, tokens: list[int], attach: Attach) -> None:
        attach(segment, tokens)
        segment.proposer = name if segment.drafts else None


class FixedDrafting(_Proposers):
    """One proposer drafts for all, as far as each may."""

    def __init__(self, name: str, proposer: Proposer) -> None:
        super().__init__({name: proposer})
        self._name = name

    def propose(self, segments: Seq[Segment], rooms: Seq[int], attach: Attach) -> Drafted:
        drafted = Drafted()
        requests = [(each, k) for each, k in zip(segments, rooms, strict=True) if k > 0]
        if not requests:
            return drafted
        drafted.segments = [each for each, _ in requests]
        asked = [DraftRequest(segment.sequence, k) for segment, k in requests]
        proposals = self._ask(self._name, asked, drafted)
        for segment, proposal in zip(drafted.segments, proposals, strict=True):
            self._attach(segment, self._name, proposal.tokens, attach)
        probs = [
            proposal.probs[: len(segment.drafts)]
            for (segment, _), proposal in zip(requests, proposals, strict=True)
            if proposal.probs is not None
        ]
        drafted.probs = torch.cat(probs) if probs else None
        return drafted


_PLANNING = "planning"


class AutoDrafting(_Proposers):
    """Lookups propose first, because that costs next to nothing; the controller then says whose
    draft each sequence gets, how long, or none."""

    def __init__(
        self,
        proposers: Mapping[str, Proposer],
        controller: Controller,
    ) -> None:
        super().__init__(proposers)
        self._lookups = {name: each for name, each in proposers.items() if name in LOOKED_UP}
        self._drafts = {name: each for name, each in proposers.items() if name not in LOOKED_UP}
        self._controller = controller
        self._likeness: dict[int, float] = {}  # of a prompt to itself, by sequence id

    def propose(self, segments: Seq[Segment], rooms: Seq[int], attach: Attach) -> Drafted:
        if not any(rooms):
            return Drafted()
        # Also those that get none: they share what the step costs.
        pairs = zip(segments, rooms, strict=True)
        asked = [(each, room) for each, room in pairs if each.is_round and each.num_tokens == 1]
        drafted = Drafted(segments=[each for each, _ in asked])
        if self._controller.may_rest([each.sequence.id for each, _ in asked]):
            self._controller.rest()
            for segment, _ in asked:
                segment.why = Why.HELD_BACK
            return drafted
        began = time.perf_counter()
        found = self._look_up(asked)
        others = sum(each.num_tokens for each in segments) - len(asked)
        candidates = [
            self._candidate(segment, room, own)
            for (segment, room), own in zip(asked, found, strict=True)
        ]
        wishes = self._controller.wish(candidates, other_tokens=others)
        planning = time.perf_counter() - began
        grades = self._draft(drafted, wishes, found)
        began = time.perf_counter()
        plans = self._controller.plan(grades)
        for segment, own, plan in zip(drafted.segments, found, plans, strict=True):
            segment.why = plan.why
            if plan.proposer is not None and plan.k:
                self._attach(segment, plan.proposer, own[plan.proposer].tokens[: plan.k], attach)
        drafted.seconds[_PLANNING] = planning + time.perf_counter() - began
        return drafted

    def _draft(
        self, drafted: Drafted, wishes: Seq[Wish], found: Seq[dict[str, Proposal]]
    ) -> dict[int, Seq[int]]:
        """Adds what the draft wrote to what was found. Its grades, by id of the text."""
        places = [at for at, wish in enumerate(wishes) if wish.k]
        if not places:
            return {}
        [name] = self._drafts
        asked = [
            DraftRequest(drafted.segments[at].sequence, wishes[at].k, wishes[at].trust)
            for at in places
        ]
        grades: dict[int, Seq[int]] = {}
        for at, proposal in zip(places, self._ask(name, asked, drafted), strict=True):
            if proposal.tokens:
                found[at][name] = proposal
                grades[wishes[at].id] = proposal.grades
        return grades

    def learn(self, drafted: Drafted, seconds: float) -> None:
        if not drafted.segments:
            return
        super().learn(drafted, seconds)
        if _PLANNING not in drafted.seconds:
            return  # a round without a plan
        outcomes = [
            Outcome(each.sequence.id, each.proposer, len(each.drafts), each.num_accepted)
            for each in drafted.segments
        ]
        drafting = {name: spent for name, spent in drafted.seconds.items() if name in self._drafts}
        times = StepTimes(seconds - sum(drafting.values()) - drafted.seconds[_PLANNING], drafting)
        self._controller.observe(outcomes, times)

    def release(self, sequence: Sequence) -> None:
        super().release(sequence)
        self._controller.release(sequence.id)
        self._likeness.pop(sequence.id, None)

    def _look_up(self, asked: Seq[tuple[Segment, int]]) -> list[dict[str, Proposal]]:
        """What each lookup found for each, where it found something."""
        found: list[dict[str, Proposal]] = [{} for _ in asked]
        places = [at for at, (_, room) in enumerate(asked) if room]
        requests = [DraftRequest(asked[at][0].sequence, asked[at][1]) for at in places]
        for name, lookup in self._lookups.items():
            for at, proposal in zip(places, lookup.propose(requests), strict=True):
                if proposal.tokens:
                    found[at][name] = proposal
        return found

    def _candidate(self, segment: Segment, room: int, found: Mapping[str, Proposal]) -> Candidate:
        sequence = segment.sequence
        behind = (
            each.num_behind(sequence)
            for each in self._drafts.values()
            if isinstance(each, CachedProposer)
        )
        likeness = self._likeness.get(sequence.id)
        if likeness is None:
            likeness = likeness_to_itself(sequence.tokens[: sequence.num_prompt_tokens])
            self._likeness[sequence.id] = likeness
        return Candidate(
            id=sequence.id,
            temperature=sequence.params.temperature,
            context=segment.start,
            room=room,
            lookups=tuple(
                LookupDraft(name, len(each.tokens), each.match) for name, each in found.items()
            ),
            behind=max(behind, default=0),
            likeness=likeness,
            lateness=sequence.lateness(time.perf_counter_ns()),
            left=sequence.params.max_tokens - sequence.num_output_tokens,
        )


def likeness_to_itself(tokens: Seq[int]) -> float:
    """The share of its pairs of tokens that occurred before in it."""
    pairs = len(tokens) - 1
    return 1 - len(set(pairwise(tokens))) / pairs if pairs > 0 else 0.0
