"""A head over the target's own hidden states drafts (EAGLE-3; layout and steps: docs/heads.md).

The head's cache is indexed by token: the entry of token s is made of that token and the target's
features one position before it. A block of the cache thus depends on the same tokens as the
target's block, and is found under the same hash when the target finds its own. The first entry
after a shared prefix needs the features of the prefix's last token, which the target does not
compute again: they are kept with every block (`_tails`).

Where the target found a prefix that the head does not have, the head works without it: its
features could only be computed by running the prompt again, which would cost more than the drafts
are worth. Its view of the text then starts at `origin`, where the features start.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

import torch
from torch import Tensor

from outdraft.engine.kv_cache import BlockPool
from outdraft.engine.proposers.cached import CachedProposer, CachedText, GrowingDraft, Sampler
from outdraft.engine.proposers.proposer import DraftRequest, Observation, Proposal
from outdraft.engine.rows import copy_rows, join_rows
from outdraft.engine.runners.runner import HeadRunner, Run
from outdraft.engine.sequence import Sequence

# Features of so many tokens wait until drafts are asked for; more are read at once, all together.
_MAX_UNREAD = 512
# Of a step with at most so many rows, or whose rows are mostly its own, the rows of a text are
# named and not copied: the step's stay in memory until then. After so many steps they are copied
# after all.
_MOST_ROWS, _MOST_STEPS = 64, 32

_Rows = tuple[Tensor, int, int]  # of a tensor, from the first to the end


@dataclass(slots=True)
class _Text(CachedText):
    origin: int  # the token that the first entry belongs to
    num_seen: int  # positions before this one have features
    unread: list[Tensor] = field(default_factory=list)  # (n, H): fused, from num_read - 1 on
    unfused: list[_Rows] = field(default_factory=list)  # (n, 3 * G): those after them
    was_asked: bool = False  # for a draft
    last: Tensor | None = None  # (1, H): the features read last
    edges: dict[int, Tensor] = field(default_factory=dict)  # block → its last token's features

    @property
    def num_unread(self) -> int:
        return self.num_seen + 1 - self.num_read


class EagleProposer(CachedProposer[_Text]):
    def __init__(self, runner: HeadRunner, pool: BlockPool, *, keep_probs: bool) -> None:
        """`keep_probs`: the rejection rule needs them."""
        super().__init__(pool)
        self._runner = runner
        head, spec = runner.head, runner.head.spec
        self._sampler = Sampler(spec.vocab_size, keep_probs=keep_probs, target_ids=head.targets)
        self._tails = torch.zeros(
            pool.num_blocks, spec.hidden_size, dtype=head.dtype, device=head.device
        )

    def release(self, sequence: Sequence) -> None:
        text = self._texts.get(sequence.id)
        if text is not None:
            end = min(text.num_seen, len(sequence))
            is_longer = text.origin == 0 and end // self.pool.block_size > len(text.hashes)
            # The last full block, for a text that continues it; more where drafts were given up.
            if is_longer and text.was_asked and text.num_unread <= self.pool.block_size:
                self._read([(sequence, text)])
        super().release(sequence)

    @torch.inference_mode()
    def observe(self, observations: Seq[Observation]) -> None:
        """Keeps features as they are: they are fused when a draft is asked for, so that a step
        without drafts costs what it costs without a head."""
        long = []
        for sequence, start, features, first, end in observations:
            text = self._recall(sequence, start)
            first += text.num_seen - start
            if first >= end:
                continue
            # A prompt that has most of the rows keeps them all.
            if len(features) > max(_MOST_ROWS, 2 * (end - first)):
                text.unfused.append((copy_rows(features[first:end]), 0, end - first))
            else:
                text.unfused.append((features, first, end))
                if len(text.unfused) > _MOST_STEPS:
                    copied = join_rows(_parts(text))
                    text.unfused = [(copied, 0, len(copied))]
            text.num_seen += end - first
            if text.num_unread > _MAX_UNREAD:
                long.append((sequence, text))
        if long:
            self._read(long)

    def num_behind(self, sequence: Sequence) -> int:
        text = self._texts.get(sequence.id)
        return len(sequence) if text is None else len(sequence) - text.num_read

    def _recall(self, sequence: Sequence, start: int) -> _Text:
        """The sequence's text; a new one where it lacks features before `start`."""
        text = self._texts.get(sequence.id)
        if text is not None and start <= text.num_seen:
            return text
        if text is not None:
            self.pool.release(text.table)
        table, hashes = self.pool.share_prefix(sequence.tokens, start)
        if start and len(table) * self.pool.block_size == start:
            tail = self._tails[table[-1]][None].clone()
            text = _Text(table, hashes, start, origin=0, num_seen=start, unread=[tail])
        else:
            self.pool.release(table)
            text = _Text([], [], start + 1, origin=start, num_seen=start)
        self._texts[sequence.id] = text
        return text

    def _fuse(self, texts: Seq[_Text]) -> None:
        """Fuses the features that wait, of all texts in one product."""
        size = self.pool.block_size
        waiting = [
            (text, sum([end - first for _, first, end in text.unfused]))
            for text in texts
            if text.unfused
        ]
        if not waiting:
            return
        parts = [part for text, _ in waiting for part in _parts(text)]
        fused = self._runner.head.fuse(join_rows(parts))
        for (text, count), rows in zip(
            waiting, fused.split([count for _, count in waiting]), strict=True
        ):
            start = text.num_seen - count
            text.unread.append(rows if len(waiting) == 1 else copy_rows(rows))
            text.unfused = []
            if text.origin == 0:
                for block in range(start // size, text.num_seen // size):
                    at = (block + 1) * size - 1 - start
                    text.edges[block] = rows[at : at + 1]

    def _read(self, pairs: Seq[tuple[Sequence, _Text]]) -> None:
        """Makes entries for all tokens that have features, without drafting."""
        self._fuse([text for _, text in pairs])
        runs = []
        for sequence, text in pairs:
            end = min(text.num_seen + 1, len(sequence))
            if end > text.num_read and self.pool.grow(text.table, end - text.origin):
                runs.append(self._take_run(sequence, text, end, num_logits=0))
        if runs:
            self._runner.run(runs)
        for sequence, text in pairs:
            self._publish(text, sequence.tokens)

    def _take_run(self, sequence: Sequence, text: _Text, end: int, num_logits: int) -> Run:
        """The run of all tokens up to `end`, which count as read from now on."""
        tokens, start = sequence.tokens[text.num_read : end], text.num_read - text.origin
        rows = join_rows(text.unread)
        count = len(tokens)
        rows, rest = rows[:count], rows[count:]
        text.unread = [rest] if len(rest) else []
        text.last = rows[-1:]
        text.num_read = end
        return Run(tokens, start, text.table, num_logits, features=rows)

    def _publish(self, text: _Text, tokens: Seq[int]) -> None:
        """Lets others share full blocks, unless the beginning of the text was not read."""
        if text.origin:
            return
        num_final = min(text.num_read, text.num_seen, len(tokens))
        for index in self.pool.publish_text(text.table, text.hashes, tokens, num_final):
            self._tails[text.table[index]] = text.edges.pop(index)[0]

    @torch.inference_mode()
    def propose(self, requests: Seq[DraftRequest]) -> list[Proposal]:
        drafts = [self._start(request) for request in requests]
        active = [each for each in drafts if each is not None]
        if active:
            self._draft(active)
        for each in active:
            self._publish(each.text, each.sequence.tokens)
            self.pool.truncate(each.text.table, each.text.num_read - each.text.origin)
        return [Proposal([]) if each is None else each.proposal() for each in drafts]

    def _start(self, request: DraftRequest) -> GrowingDraft[_Text] | None:
        """None where features or blocks are missing."""
        sequence, length = request.sequence, len(request.sequence)
        text = self._texts.get(sequence.id)
        if text is None or text.num_seen < length - 1 or request.k < 1:
            return None
        text.was_asked = True
        if text.num_read >= length and text.last is not None:
            # Asked again about the same text: its last token is read again.
            text.num_read, text.unread = length - 1, [text.last]
        if text.num_read >= length:
            return None  # it has seen one token only
        end, k = length - text.origin, request.k
        # The last draft is not read: it needs no entry.
        while k and not self.pool.grow(text.table, end + k - 1):
            k -= 1
        return GrowingDraft(sequence, text, k, request.trust) if k else None

    def _draft(self, active: Seq[GrowingDraft[_Text]]) -> None:
        """One token at a time for all sequences, until none wants more. Shorter drafts are cut at
        the end."""
        self._fuse([each.text for each in active])
        runs = [self._take_run(each.sequence, each.text, len(each.sequence), 1) for each in active]
        k = max(each.k for each in active)
        chain = self._runner.start_chain(runs, k)
        self._sampler.draw(active, chain.logits)
        while any(each.wants_more for each in active):
            chain.extend([each.tokens[-1] for each in active])
            self._sampler.draw(active, chain.logits)


def _parts(text: _Text) -> list[Tensor]:
    return [features[first:end] for features, first, end in text.unfused]
