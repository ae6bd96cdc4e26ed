"""A closed loop: so many texts at a time, one round after the other, until enough is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from outdraft.engine.controller import Candidate, DraftPlan, Outcome, StepTimes
from outdraft.step_costs import RoundCosts

from .machines import noise
from .texts import Text


class Policy(Protocol):
    planning: float  # seconds that its plan took
    # Tokens that the head wrote for its last plan, by text: verified or not. None: just those.
    written: Mapping[int, int] | None

    def plan(self, candidates: Sequence[Candidate]) -> Sequence[DraftPlan]: ...

    def observe(self, outcomes: Sequence[Outcome], times: StepTimes) -> None: ...

    def release(self, id: int) -> None: ...


@dataclass(slots=True)
class Run:
    """What a policy made of a case. Times are true ones, without the noise that it saw."""

    tokens: int = 0
    seconds: float = 0.0
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    # (tokens, seconds) as it went
    course: list[tuple[int, float]] = field(default_factory=list)

    @property
    def throughput(self) -> float:
        return self.tokens / self.seconds


def simulate(
    policy: Policy,
    texts: Iterator[Text],
    truths: Callable[[float], RoundCosts],
    concurrency: Callable[[float], int],
    num_tokens: int,
    seed: int,
) -> Run:
    """`truths`: what the machine costs, and `concurrency`: texts at a time, by the share of the
    work that is done."""
    chance, run, running = np.random.default_rng(seed), Run(), list[Text]()
    known: dict[tuple[int, int, int], float] = {}  # seconds at the shortest context

    while run.tokens < num_tokens:
        done = run.tokens / num_tokens
        truth, at_a_time = truths(done), concurrency(done)
        while len(running) < at_a_time:
            running.append(next(texts))
        batch = running[:at_a_time]
        plans = policy.plan([_candidate(text) for text in batch])
        outcomes, depth, drafted, behind, proposed = [], 0, 0, 0, 0
        for text, plan in zip(batch, plans, strict=True):
            k = min(plan.k, text.room)
            proposer = plan.proposer if k else None
            accepted = text.acceptable(proposer, k) if proposer else 0
            wrote = k if proposer == "head" else 0
            if policy.written is not None:
                wrote = policy.written.get(text.id, 0)
            if wrote:
                depth, drafted = max(depth, wrote), drafted + wrote
                behind += max(text.at - text.read - 1, 0)
                text.read = text.at
            outcomes.append(Outcome(text.id, proposer, k if proposer else 0, accepted))
            proposed += k if proposer else 0
            run.accepted += accepted
            run.tokens += accepted + 1
        num, context = len(batch), sum(text.context for text in batch) / len(batch)
        more = max(context - truth.context, 0.0)
        reads = truth.per_read * num + truth.per_row_read * (num + proposed)
        key = id(truth), num + proposed, num
        if key not in known:
            known[key] = truth.verification(num + proposed, num, truth.context)
        verification = known[key] + reads * more
        drafting = truth.drafting("head", depth, drafted, behind)
        run.seconds += verification + drafting + policy.planning
        run.rounds, run.drafted = run.rounds + 1, run.drafted + proposed
        run.course.append((run.tokens, run.seconds))
        seen = {"head": drafting * noise(chance)} if drafted else {}
        policy.observe(outcomes, StepTimes(verification * noise(chance), seen))
        for text, outcome in zip(batch, outcomes, strict=True):
            text.advance(outcome.proposer, outcome.accepted)
        for text in batch:
            if text.at >= text.length:
                running.remove(text)
                policy.release(text.id)
    return run


def _candidate(text: Text) -> Candidate:
    return Candidate(
        text.id,
        text.temperature,
        text.context,
        text.room,
        text.lookups,
        behind=max(text.at - text.read - 1, 0),
    )
