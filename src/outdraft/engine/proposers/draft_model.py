"""A small model of the same tokenizer drafts; its own weights, KV cache and quantization."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

import torch
from torch import Tensor

from outdraft.engine.kv_cache import BlockPool, extend_hashes
from outdraft.engine.proposers.proposer import Ask, Draft
from outdraft.engine.runner import Run, Runner
from outdraft.engine.sampling import Row, Stream, draw, probabilities, processed_logits
from outdraft.engine.sequence import Sequence


@dataclass(slots=True)
class _Memory:
    """What the draft has read of one sequence."""

    table: list[int]
    hashes: list[bytes]
    num_read: int  # of the sequence's own tokens
    guesses: list[int] = field(default_factory=list)  # drafts read behind them


@dataclass(slots=True)
class _Drafting:
    """One ask in this round."""

    ask: Ask
    memory: _Memory
    tokens: list[int] = field(default_factory=list)
    probs: list[Tensor] = field(default_factory=list)


class DraftModelProposer:
    def __init__(
        self,
        runner: Runner,
        pool: BlockPool,
        *,
        vocab_size: int,
        max_context: int,
        keep_probs: bool,
        max_prefill_tokens: int = 512,
    ) -> None:
        """`vocab_size` is the target's. `keep_probs`: the rejection rule will ask for them."""
        self._runner = runner
        self._pool = pool
        self._vocab_size = vocab_size
        self._max_context = max_context
        self._keep_probs = keep_probs
        self._max_prefill_tokens = max_prefill_tokens
        self._memories: dict[int, _Memory] = {}

    @property
    def pool(self) -> BlockPool:
        return self._pool

    @property
    def tables(self) -> list[list[int]]:
        return [memory.table for memory in self._memories.values()]

    def propose(self, asks: Seq[Ask]) -> list[Draft]:
        draftings = [_Drafting(ask, self._recall(ask.sequence)) for ask in asks]
        self._catch_up(draftings)
        active = [d for d in draftings if self._may_start(d)]
        while active:
            self._draft_one(active)
            active = [d for d in active if self._may_go_on(d)]
        return [Draft(d.tokens, torch.cat(d.probs) if d.probs else None) for d in draftings]

    def release(self, sequence: Sequence) -> None:
        memory = self._memories.pop(sequence.id, None)
        if memory is not None:
            self._pool.release(memory.table)

    def forget(self) -> None:
        self._pool.forget()

    def _recall(self, sequence: Sequence) -> _Memory:
        """The sequence's memory, cut back to what still agrees with its tokens."""
        tokens, size = sequence.tokens, self._pool.block_size
        memory = self._memories.get(sequence.id)
        if memory is None:
            hashes: list[bytes] = []
            extend_hashes(hashes, tokens, len(tokens) - 1, size)
            table = self._pool.share(hashes)
            memory = _Memory(table, hashes[: len(table)], len(table) * size)
            self._memories[sequence.id] = memory
        # The last token always is read anew: its logits are where drafting starts.
        memory.num_read = min(memory.num_read, len(tokens) - 1)
        for guess in memory.guesses:
            if memory.num_read + 1 >= len(tokens) or tokens[memory.num_read] != guess:
                break
            memory.num_read += 1
        memory.guesses = []
        self._settle(memory, tokens)
        self._pool.truncate(memory.table, memory.num_read)
        return memory

    def _settle(self, memory: _Memory, tokens: Seq[int]) -> None:
        known = len(memory.hashes)
        extend_hashes(memory.hashes, tokens, memory.num_read, self._pool.block_size)
        for index in range(known, len(memory.hashes)):
            self._pool.publish(memory.table[index], memory.hashes[index])

    def _catch_up(self, draftings: Seq[_Drafting]) -> None:
        """Reads prompts, a bounded number of tokens per round so that nobody waits long."""
        budget = self._max_prefill_tokens
        runs: list[Run] = []
        for drafting in draftings:
            memory, tokens = drafting.memory, drafting.ask.sequence.tokens
            count = min(len(tokens) - 1 - memory.num_read, budget)
            end = memory.num_read + count
            if count <= self._runner.decoder.min_rows or end > self._max_context:
                continue  # what is left of a round is read together with the first draft
            if self._pool.grow(memory.table, end):
                new = tokens[memory.num_read : end]
                runs.append(Run(self._legible(new), memory.num_read, memory.table, num_logits=0))
                memory.num_read = end
                budget -= count
        if runs:
            self._runner.run(runs)
        for drafting in draftings:
            self._settle(drafting.memory, drafting.ask.sequence.tokens)

    def _legible(self, tokens: Seq[int]) -> list[int]:
        """Tokens the draft has no embedding for become its last: padded vocabularies differ."""
        last = self._runner.decoder.spec.vocab_size - 1
        return [min(token, last) for token in tokens]

    def _may_start(self, drafting: _Drafting) -> bool:
        unread = len(drafting.ask.sequence.tokens) - drafting.memory.num_read
        return unread <= self._runner.decoder.min_rows + 1 and self._may_go_on(drafting)

    def _may_go_on(self, drafting: _Drafting) -> bool:
        end = len(drafting.ask.sequence.tokens) + len(drafting.tokens)
        return (
            len(drafting.tokens) < drafting.ask.k
            and end <= self._max_context
            and self._pool.grow(drafting.memory.table, end)
        )

    def _draft_one(self, active: Seq[_Drafting]) -> None:
        """One forward over all sequences still drafting, one more token for each."""
        runs = []
        for drafting in active:
            memory, tokens = drafting.memory, drafting.ask.sequence.tokens
            start = memory.num_read + len(memory.guesses)
            new = [*tokens[memory.num_read :], *drafting.tokens][start - memory.num_read :]
            runs.append(Run(self._legible(new), start, memory.table, num_logits=1))
            memory.num_read = len(tokens)
            memory.guesses = list(drafting.tokens)
        rows = [Row(d.ask.sequence, tuple(d.tokens)) for d in active]
        logits = self._runner.run(runs).logits[:, : self._vocab_size]
        processed = processed_logits(logits, rows)
        drawn = draw(processed, rows, Stream.DRAFT if self._keep_probs else Stream.TOKEN)
        if self._keep_probs:
            probs = probabilities(processed, rows)
            missing = self._vocab_size - probs.shape[1]
            probs = torch.nn.functional.pad(probs, (0, missing)) if missing else probs
            for index, drafting in enumerate(active):
                drafting.probs.append(probs[index : index + 1])
        for drafting, token in zip(active, drawn.tolist(), strict=True):
            drafting.tokens.append(token)
