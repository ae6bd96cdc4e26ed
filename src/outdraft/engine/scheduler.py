"""Who runs in the next step, and how many tokens of each.

Sequences that are decoding come first, then prompts in chunks, as far as the step's token
budget goes. When blocks run out the latest comer is sent back to wait; it recomputes its
tokens later (or finds them still in the cache) and its text does not change.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

from torch import Tensor

from outdraft.engine.kv_cache import BlockPool, extend_hashes
from outdraft.engine.proposers.proposer import Seen
from outdraft.engine.runner import Run
from outdraft.engine.sequence import Sequence, Status


@dataclass(slots=True)
class Work:
    """One sequence's share of a step."""

    sequence: Sequence
    num_tokens: int  # of its own tokens to compute
    drafts: list[int] = field(default_factory=list)

    @property
    def reaches_end(self) -> bool:
        """Whether the last token is computed, so that the next can be drawn."""
        return self.num_tokens == self.sequence.num_uncomputed

    @property
    def num_drawn(self) -> int:
        """Rows whose logits decide a token: every draft's, and the one behind them."""
        return len(self.drafts) + 1 if self.reaches_end else 0

    @property
    def scores_prompt(self) -> bool:
        wanted = self.sequence.params.prompt_logprobs is not None
        return wanted and self.sequence.num_output_tokens == 0

    @property
    def num_logits(self) -> int:
        return self.num_tokens if self.scores_prompt else self.num_drawn

    def run(self) -> Run:
        tokens, start = self.sequence.tokens, self.sequence.num_computed
        return Run(
            tokens=[*tokens[start : start + self.num_tokens], *self.drafts],
            start=start,
            table=self.sequence.table,
            num_logits=self.num_logits,
        )


def seen(works: Seq[Work], emitted: Seq[Seq[int]], features: Tensor) -> list[Seen]:
    """What is worth showing of a step: `emitted` are the tokens of the works that reach the end."""
    found = []
    accepted = iter(len(tokens) - 1 for tokens in emitted)
    row = 0
    for work in works:
        count = work.num_tokens + (next(accepted) if work.reaches_end else 0)
        found.append(Seen(work.sequence, work.sequence.num_computed, features[row : row + count]))
        row += work.num_tokens + len(work.drafts)
    return found


class Scheduler:
    def __init__(self, pool: BlockPool, *, max_num_seqs: int, max_num_batched_tokens: int) -> None:
        self._pool = pool
        self._max_num_seqs = max_num_seqs
        self._max_num_batched_tokens = max_num_batched_tokens
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []  # in order of admission
        self._budget = 0  # tokens the present step may still take
        self.num_preemptions = 0
        self.num_prefix_queries = 0  # prompt tokens looked for in the cache
        self.num_prefix_hits = 0  # and found

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def tables(self) -> list[list[int]]:
        return [sequence.table for sequence in (*self._running, *self._waiting)]

    def add(self, sequence: Sequence) -> None:
        self._waiting.append(sequence)

    def remove(self, sequence: Sequence) -> None:
        """At any moment: the sequence is forgotten and every block of it given back."""
        if sequence in self._running:
            self._running.remove(sequence)
        elif sequence in self._waiting:
            self._waiting.remove(sequence)
        self._pool.release(sequence.table)

    def schedule(self) -> list[Work]:
        self._budget = self._max_num_batched_tokens
        works: list[Work] = []
        decoding = [s for s in self._running if s.num_uncomputed == 1]
        prefilling = [s for s in self._running if s.num_uncomputed > 1]
        preempted = False
        for sequence in (*decoding, *prefilling):
            if sequence.status is not Status.RUNNING or self._budget == 0:
                continue  # was sent back a moment ago, or has to sit this step out
            count = min(sequence.num_uncomputed, self._budget)
            while not self._pool.grow(sequence.table, sequence.num_computed + count):
                preempted = True
                victim = self._running[-1]
                works = [work for work in works if work.sequence is not victim]
                self._preempt(victim)
                if victim is sequence:
                    break
            else:
                self._budget -= count
                works.append(Work(sequence, count))
        if not preempted:
            self._admit(works)
        return works

    def attach(self, work: Work, drafts: list[int]) -> None:
        """Adds drafts to a sequence's share, as many as tokens and blocks allow."""
        computed = work.sequence.num_computed + work.num_tokens
        table = work.sequence.table
        room = min(len(drafts), self._budget)
        if not self._pool.grow(table, computed + room):
            room = min(room, len(table) * self._pool.block_size - computed)
        work.drafts = drafts[:room]
        self._budget -= room

    def commit(self, work: Work, num_accepted: int) -> None:
        """The step is done. Call before new tokens are appended, with the drafts accepted."""
        sequence = work.sequence
        sequence.num_computed += work.num_tokens + num_accepted
        self._pool.truncate(sequence.table, sequence.num_computed)

    def publish(self, sequence: Sequence) -> None:
        """Lets others share the sequence's full blocks. Call after its tokens are appended."""
        known = len(sequence.block_hashes)
        # A text that ended within its drafts has fewer tokens than were computed.
        num_final = min(sequence.num_computed, len(sequence))
        extend_hashes(sequence.block_hashes, sequence.tokens, num_final, self._pool.block_size)
        for index in range(known, len(sequence.block_hashes)):
            self._pool.publish(sequence.table[index], sequence.block_hashes[index])

    def _admit(self, works: list[Work]) -> None:
        while self._waiting and self._budget and len(self._running) < self._max_num_seqs:
            sequence = self._waiting[0]
            size = self._pool.block_size
            hashes: list[bytes] = []
            # At least one token stays to be computed: its logits are needed. Whoever wants the
            # prompt's logits shares none of it.
            shares = sequence.params.prompt_logprobs is None
            if shares:
                extend_hashes(hashes, sequence.tokens, len(sequence) - 1, size)
            table = self._pool.share(hashes)
            cached = len(table) * size
            count = min(len(sequence) - cached, self._budget)
            # While others run one block is kept in hand, or the newcomer would soon be sent back.
            spare = self._pool.num_free - (self._pool.blocks_for(cached + count) - len(table))
            if spare < min(len(self._running), 1) or not self._pool.grow(table, cached + count):
                self._pool.release(table)
                return
            self._waiting.popleft()
            sequence.table = table
            sequence.block_hashes = hashes[: cached // size]
            sequence.num_computed = cached
            if sequence.num_preemptions == 0:  # else it would find its own output too
                sequence.num_cached = cached
                self.num_prefix_queries += len(sequence) if shares else 0
                self.num_prefix_hits += cached
            sequence.status = Status.RUNNING
            self._running.append(sequence)
            self._budget -= count
            works.append(Work(sequence, count))

    def _preempt(self, sequence: Sequence) -> None:
        self._running.remove(sequence)
        self._pool.release(sequence.table)
        sequence.block_hashes.clear()
        sequence.num_computed = 0
        sequence.num_preemptions += 1
        self.num_preemptions += 1
        sequence.status = Status.WAITING
        self._waiting.appendleft(sequence)
