"""Which sequences run in the next step, and how many tokens of each.

Sequences that are decoding come first, then prompts in chunks, up to the step's token budget.
When blocks run out, the sequence that was admitted last is preempted: it waits, recomputes its
tokens later (or finds them still in the cache), and its text does not change.
"""

from collections import deque

from outdraft.engine.kv_cache import BlockPool
from outdraft.engine.sequence import Sequence, Status
from outdraft.engine.step import Segment, Step


class Scheduler:
    def __init__(self, pool: BlockPool, *, max_num_seqs: int, max_num_batched_tokens: int) -> None:
        self._pool = pool
        self._max_num_seqs = max_num_seqs
        self._max_num_batched_tokens = max_num_batched_tokens
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []  # in order of admission
        self._budget = 0  # tokens that the current step has room for
        self.num_preemptions = 0
        self.prefix_hits = (0, 0)  # prompt tokens found in the cache, and those looked up

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
        """Drops a sequence at any moment and gives back all of its blocks."""
        if sequence in self._running:
            self._running.remove(sequence)
        elif sequence in self._waiting:
            self._waiting.remove(sequence)
        self._pool.release(sequence.table)

    def schedule(self) -> Step:
        self._budget = self._max_num_batched_tokens
        segments: list[Segment] = []
        decoding = [s for s in self._running if s.num_uncomputed == 1]
        prefilling = [s for s in self._running if s.num_uncomputed > 1]
        preempted = False
        for sequence in (*decoding, *prefilling):
            if sequence.status is not Status.RUNNING or self._budget == 0:
                continue  # preempted a moment ago, or left out of this step
            count = min(sequence.num_uncomputed, self._budget)
            while not self._pool.grow(sequence.table, sequence.num_computed + count):
                preempted = True
                victim = self._running[-1]
                segments = [segment for segment in segments if segment.sequence is not victim]
                self._preempt(victim)
                if victim is sequence:
                    break
            else:
                self._budget -= count
                segments.append(Segment(sequence, count))
        if not preempted:
            self._admit(segments)
        return Step(segments)

    @property
    def room(self) -> int:
        """Tokens that the step which was scheduled last may still get."""
        return self._budget

    def attach(self, segment: Segment, drafts: list[int]) -> None:
        """Adds drafts to a scheduled segment, as many as the budget and the blocks allow."""
        computed, table = segment.start + segment.num_tokens, segment.sequence.table
        room = min(len(drafts), self._budget)
        if not self._pool.grow(table, computed + room):
            room = min(room, len(table) * self._pool.block_size - computed)
        segment.drafts = drafts[:room]
        self._budget -= room

    def finish(self, step: Step) -> None:
        """Takes in a step whose new tokens are appended: gives back the blocks of refused drafts,
        publishes full blocks, and drops the sequences that have ended."""
        for segment in step.segments:
            sequence = segment.sequence
            sequence.num_computed += segment.num_tokens + segment.num_accepted
            self._pool.truncate(sequence.table, sequence.num_computed)
            # A text that ended within its drafts has fewer tokens than were computed.
            num_final = min(sequence.num_computed, len(sequence))
            self._pool.publish_text(
                sequence.table, sequence.block_hashes, sequence.tokens, num_final
            )
            if sequence.is_finished:
                self.remove(sequence)

    def _admit(self, segments: list[Segment]) -> None:
        while self._waiting and self._budget and len(self._running) < self._max_num_seqs:
            sequence = self._waiting[0]
            # At least one token stays to be computed: its logits are needed. A prompt whose
            # tokens are scored is computed from its start.
            shares = sequence.params.prompt_logprobs is None
            table, hashes = self._pool.share_prefix(
                sequence.tokens, len(sequence) - 1 if shares else 0
            )
            cached = len(table) * self._pool.block_size
            count = min(len(sequence) - cached, self._budget)
            # While others run, one block is left free, or the new one would soon be preempted.
            spare = self._pool.num_free - (self._pool.blocks_for(cached + count) - len(table))
            if spare < min(len(self._running), 1) or not self._pool.grow(table, cached + count):
                self._pool.release(table)
                return
            self._waiting.popleft()
            sequence.table = table
            sequence.block_hashes = hashes
            sequence.num_computed = cached
            if sequence.num_preemptions == 0:  # afterwards it finds its own output too
                sequence.num_cached = cached
                hits, queries = self.prefix_hits
                self.prefix_hits = (hits + cached, queries + (len(sequence) if shares else 0))
            sequence.status = Status.RUNNING
            self._running.append(sequence)
            self._budget -= count
            segments.append(Segment(sequence, count))

    def _preempt(self, sequence: Sequence) -> None:
        self._running.remove(sequence)
        self._pool.release(sequence.table)
        sequence.block_hashes.clear()
        sequence.num_computed = 0
        sequence.num_preemptions += 1
        self.num_preemptions += 1
        sequence.status = Status.WAITING
        self._waiting.appendleft(sequence)
