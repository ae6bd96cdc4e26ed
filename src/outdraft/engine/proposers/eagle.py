"""A head over the target's own hidden states drafts (EAGLE-3; layout and steps: modelspec/head.py).

The head's cache is indexed by token: the entry of token s is made of that token and the target's
features one position before it. So a block of it depends on the same tokens as the target's own
block, and is found again under the same hash when the target finds its. The entry behind a shared
beginning needs the features of that beginning's last token, which the target does not compute
anew: they are kept with every block (`_tails`).

Where the target found a beginning that the head has not, the head does without: features that
nobody computes cannot be had but by computing the prompt again, which would cost more than the
drafts that are missed. Its view of such a text starts where features do. The first token of a view
has no features before it; nobody sees its entry (`FIRST_KEY`).
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from outdraft.engine.kv_cache import SCRATCH_BLOCK, BlockPool, KVCache, extend_hashes
from outdraft.engine.models.elementwise import Rotation
from outdraft.engine.models.head import Head
from outdraft.engine.proposers.proposer import Ask, Draft, Seen
from outdraft.engine.runner import Batcher, Run
from outdraft.engine.sampling import (
    Row,
    Stream,
    draw,
    probabilities,
    processed_logits,
    row_noise,
)
from outdraft.engine.sequence import Sequence

FIRST_KEY = 1
# Features of so many tokens wait until drafts are asked for; more are read at once.
_MAX_UNREAD = 128


@dataclass(slots=True)
class _Memory:
    """What the head has read of one sequence, and what it could read."""

    table: list[int]
    hashes: list[bytes]
    origin: int  # the token that its first entry belongs to
    num_read: int  # tokens before this one have entries
    num_seen: int  # positions before this one have features
    unread: list[Tensor] = field(default_factory=list)  # (n, H): features from num_read - 1 on
    last: Tensor | None = None  # (1, H): the features read last
    edges: dict[int, Tensor] = field(default_factory=dict)  # block → its last token's features

    @property
    def num_unread(self) -> int:
        return self.num_seen + 1 - self.num_read


@dataclass(slots=True)
class _Drafting:
    """One ask in this round."""

    sequence: Sequence
    memory: _Memory
    k: int
    tokens: list[int] = field(default_factory=list)
    probs: list[Tensor] = field(default_factory=list)

    def draft(self) -> Draft:
        probs = torch.cat(self.probs[: self.k]) if self.probs else None
        return Draft(self.tokens[: self.k], probs)


class EagleProposer:
    def __init__(self, head: Head, cache: KVCache, pool: BlockPool, *, keep_probs: bool) -> None:
        """`keep_probs`: the rejection rule will ask for them."""
        spec = head.spec
        self._head = head
        self._cache = cache
        self._pool = pool
        self._keep_probs = keep_probs
        self._batcher = Batcher(
            cache,
            num_heads=spec.num_heads,
            num_kv_heads=spec.num_kv_heads,
            windows=(None,),
            min_rows=head.min_rows,
            first_key=FIRST_KEY,
        )
        self._tails = torch.zeros(
            pool.num_blocks, spec.hidden_size, dtype=head.dtype, device=head.device
        )
        self._memories: dict[int, _Memory] = {}

    @property
    def pool(self) -> BlockPool:
        return self._pool

    @property
    def tables(self) -> list[list[int]]:
        return [memory.table for memory in self._memories.values()]

    def release(self, sequence: Sequence) -> None:
        memory = self._memories.pop(sequence.id, None)
        if memory is not None:
            size, end = self._pool.block_size, min(memory.num_seen, len(sequence))
            if memory.origin == 0 and end // size > len(memory.hashes):
                self._read([(sequence, memory)])  # a block for whoever goes on from this text
            self._pool.release(memory.table)

    def forget(self) -> None:
        self._pool.forget()

    # ------------------------------------------------------------ features

    @torch.inference_mode()
    def observe(self, seen: Seq[Seen]) -> None:
        parts = [one.features for one in seen]
        fused = self._head.fuse(parts[0] if len(parts) == 1 else torch.cat(parts))
        for one, rows in zip(seen, fused.split([len(part) for part in parts]), strict=True):
            memory = self._recall(one.sequence, one.start)
            new = rows[memory.num_seen - one.start :]
            if len(new):
                # A few rows of many are copied, or they would keep all of them.
                self._append(memory, new if len(parts) == 1 else new.clone())
        long = [
            (one.sequence, self._memories[one.sequence.id])
            for one in seen
            if self._memories[one.sequence.id].num_unread > _MAX_UNREAD
        ]
        if long:
            self._read(long)

    def _recall(self, sequence: Sequence, start: int) -> _Memory:
        """The sequence's memory; a new one where it knows nothing of the tokens before `start`."""
        memory = self._memories.get(sequence.id)
        if memory is not None and start <= memory.num_seen:
            return memory
        if memory is not None:
            self._pool.release(memory.table)
        size = self._pool.block_size
        hashes: list[bytes] = []
        extend_hashes(hashes, sequence.tokens, start, size)
        table = self._pool.share(hashes)
        if start and len(table) * size == start:
            tail = self._tails[table[-1]][None].clone()
            memory = _Memory(table, hashes, 0, start, start, [tail])
        else:
            self._pool.release(table)
            memory = _Memory([], [], start, start + 1, start)
        self._memories[sequence.id] = memory
        return memory

    def _append(self, memory: _Memory, rows: Tensor) -> None:
        size, start = self._pool.block_size, memory.num_seen
        memory.unread.append(rows)
        memory.num_seen += len(rows)
        if memory.origin == 0:
            for block in range(start // size, memory.num_seen // size):
                at = (block + 1) * size - 1 - start
                memory.edges[block] = rows[at : at + 1]

    # ------------------------------------------------------------ reading

    @torch.inference_mode()
    def _read(self, pairs: Seq[tuple[Sequence, _Memory]]) -> None:
        """Makes entries of all that has features, without drafting."""
        runs, hidden = [], []
        for sequence, memory in pairs:
            end = min(memory.num_seen + 1, len(sequence))
            if end > memory.num_read and self._pool.grow(memory.table, end - memory.origin):
                runs.append(self._run(sequence, memory, end, num_logits=0))
                hidden += self._take(memory, end)
        if runs:
            self._forward(runs, hidden)
        for sequence, memory in pairs:
            self._settle(memory, sequence.tokens)

    def _run(self, sequence: Sequence, memory: _Memory, end: int, num_logits: int) -> Run:
        tokens = sequence.tokens[memory.num_read : end]
        return Run(tokens, memory.num_read - memory.origin, memory.table, num_logits)

    def _take(self, memory: _Memory, end: int) -> list[Tensor]:
        """The features of tokens up to `end`, which now count as read."""
        count, left = end - memory.num_read, memory.num_unread
        taken, memory.unread = memory.unread, []
        if left > count:
            rows = torch.cat(taken)
            taken, memory.unread = [rows[:count]], [rows[count:]]
        memory.last = taken[-1][-1:]
        memory.num_read = end
        return taken

    def _forward(self, runs: Seq[Run], hidden: list[Tensor]) -> Tensor:
        """The output (R, H) of the rows wanted, then of rows that pad."""
        batch = self._batcher.prepare(runs)
        states = hidden[0] if len(hidden) == 1 else torch.cat(hidden)
        missing = len(batch.tokens) - len(states)
        if missing > 0:
            states = F.pad(states, (0, 0, 0, missing))
        rotation = self._head.rotation(batch.positions)
        output = self._head.forward(batch, states, self._cache, rotation)
        return output.index_select(0, batch.logit_rows)

    def _settle(self, memory: _Memory, tokens: Seq[int]) -> None:
        """Lets others share full blocks. Not those of a text whose beginning was not read."""
        if memory.origin:
            return
        known = len(memory.hashes)
        num_final = min(memory.num_read, memory.num_seen, len(tokens))
        extend_hashes(memory.hashes, tokens, num_final, self._pool.block_size)
        for index in range(known, len(memory.hashes)):
            self._tails[memory.table[index]] = memory.edges.pop(index)[0]
            self._pool.publish(memory.table[index], memory.hashes[index])

    # ------------------------------------------------------------ drafting

    @torch.inference_mode()
    def propose(self, asks: Seq[Ask]) -> list[Draft]:
        found = [self._start(ask) for ask in asks]
        active = [drafting for drafting in found if drafting is not None]
        if active:
            self._draft(active)
        for one in active:
            self._settle(one.memory, one.sequence.tokens)
            self._pool.truncate(one.memory.table, one.memory.num_read - one.memory.origin)
        return [one.draft() if one is not None else Draft([]) for one in found]

    def _start(self, ask: Ask) -> _Drafting | None:
        """None where features are missing (nothing was computed yet), or room."""
        sequence, length = ask.sequence, len(ask.sequence)
        memory = self._memories.get(sequence.id)
        if memory is None or memory.num_seen < length - 1 or ask.k < 1:
            return None
        if memory.num_read >= length and memory.last is not None:
            # Asked again about the same text: its last token is read once more.
            memory.num_read, memory.unread = length - 1, [memory.last]
        if memory.num_read >= length:
            return None  # all it has seen is one token
        end, k = length - memory.origin, ask.k
        # The last draft is not read: it needs no entry.
        while k and not self._pool.grow(memory.table, end + k - 1):
            k -= 1
        return _Drafting(sequence, memory, k) if k else None

    def _draft(self, active: Seq[_Drafting]) -> None:
        """One forward after another over all sequences at once, a token each.

        Whoever wants fewer than the others is computed on with them, and cut at the end.
        """
        runs, hidden = [], []
        for one in active:
            runs.append(self._run(one.sequence, one.memory, len(one.sequence), num_logits=1))
            hidden += self._take(one.memory, len(one.sequence))
        states = self._forward(runs, hidden)
        self._draw(active, states)
        steps = max(one.k for one in active) - 1
        if steps == 0:
            return
        runs = []
        for one in active:
            start = one.memory.num_read - one.memory.origin
            room = self._pool.blocks_for(start + steps) - len(one.memory.table)
            runs.append(Run([0], start, [*one.memory.table, *[SCRATCH_BLOCK] * room], 1))
        batches = self._batcher.prepare_chain(runs, steps)
        rows = len(batches[0].tokens)
        rotations = self._head.rotation(torch.cat([batch.positions for batch in batches]))
        for batch, cos, sin in zip(
            batches, rotations.cos.split(rows), rotations.sin.split(rows), strict=True
        ):
            last = [one.tokens[-1] for one in active]
            tokens = torch.tensor([*last, *[0] * (rows - len(last))]).to(self._head.device)
            states = self._head.forward(
                replace(batch, tokens=tokens), states, self._cache, Rotation(cos, sin)
            )
            self._draw(active, states)

    def _draw(self, active: Seq[_Drafting], states: Tensor) -> None:
        """One more token for each, by the same noise as the target's."""
        logits = self._head.logits(states)[: len(active)]
        rows = [Row(one.sequence, tuple(one.tokens)) for one in active]
        stream = Stream.DRAFT if self._keep_probs else Stream.TOKEN
        targets, size = self._head.targets, self._head.spec.vocab_size
        shape = (len(rows), size)
        if all(_is_plain(row) for row in rows):
            # All of it can happen within the draft vocabulary.
            processed = processed_logits(logits, rows)
            noise = row_noise(rows, size, logits.device, stream)
            scores = processed if noise is None else processed + noise.index_select(1, targets)
            drawn = targets[scores.argmax(1)]
            if self._keep_probs:
                probs = probabilities(processed, rows)
                probs = probs.new_zeros(shape).index_copy_(1, targets, probs)
        else:
            full = logits.new_full(shape, float("-inf")).index_copy_(1, targets, logits)
            processed = processed_logits(full, rows)
            drawn = draw(processed, rows, stream)
            if self._keep_probs:  # no number where every draft token is ruled out
                probs = probabilities(processed, rows).nan_to_num_(0.0)
        for index, (one, token) in enumerate(zip(active, drawn.tolist(), strict=True)):
            one.tokens.append(token)
            if self._keep_probs:
                one.probs.append(probs[index : index + 1])


def _is_plain(row: Row) -> bool:
    """Whether no token is treated differently for being that token."""
    return not (row.params.has_penalties or row.params.logit_bias or row.banned)
