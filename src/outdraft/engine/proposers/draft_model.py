"""A small model with the target's tokenizer drafts. It has a KV cache of its own."""

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

from outdraft.engine.kv_cache import BlockPool
from outdraft.engine.proposers.cached import CachedProposer, CachedText, GrowingDraft, Sampler
from outdraft.engine.proposers.proposer import DraftRequest, Proposal
from outdraft.engine.runners.runner import Run, Runner
from outdraft.engine.sequence import Sequence


@dataclass(slots=True)
class _Text(CachedText):
    guesses: list[int] = field(default_factory=list)  # drafts with entries after those


class DraftModelProposer(CachedProposer[_Text]):
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
        """`vocab_size` is the target's. `keep_probs`: the rejection rule needs them."""
        super().__init__(pool)
        self._runner = runner
        self._sampler = Sampler(vocab_size, keep_probs=keep_probs)
        self._max_context = max_context
        self._max_prefill_tokens = max_prefill_tokens

    def propose(self, requests: Seq[DraftRequest]) -> list[Proposal]:
        drafts = [
            GrowingDraft(each.sequence, self._recall(each.sequence), each.k, each.trust)
            for each in requests
        ]
        self._catch_up(drafts)
        active = [each for each in drafts if self._may_start(each)]
        while active:
            self._draft_one(active)
            active = [each for each in active if self._may_continue(each)]
        return [each.proposal() for each in drafts]

    def num_behind(self, sequence: Sequence) -> int:
        text = self._texts.get(sequence.id)
        if text is None:
            return len(sequence)
        return max(len(sequence) - text.num_read - len(text.guesses), 0)

    def _recall(self, sequence: Sequence) -> _Text:
        """What the cache holds of the sequence, cut back to what agrees with its tokens."""
        tokens = sequence.tokens
        text = self._texts.get(sequence.id)
        if text is None:
            table, hashes = self.pool.share_prefix(tokens, len(tokens) - 1)
            text = _Text(table, hashes, len(table) * self.pool.block_size)
            self._texts[sequence.id] = text
        # The last token is always read again: drafting starts from its logits.
        text.num_read = min(text.num_read, len(tokens) - 1)
        for guess in text.guesses:
            if text.num_read + 1 >= len(tokens) or tokens[text.num_read] != guess:
                break
            text.num_read += 1
        text.guesses = []
        self.pool.publish_text(text.table, text.hashes, tokens, text.num_read)
        self.pool.truncate(text.table, text.num_read)
        return text

    def _catch_up(self, drafts: Seq[GrowingDraft[_Text]]) -> None:
        """Reads prompts, a bounded number of tokens per round so that others do not wait long."""
        budget = self._max_prefill_tokens
        runs: list[Run] = []
        for draft in drafts:
            text, tokens = draft.text, draft.sequence.tokens
            count = min(len(tokens) - 1 - text.num_read, budget)
            end = text.num_read + count
            if count <= self._runner.min_rows or end > self._max_context:
                continue  # the few tokens of a round are read together with the first draft
            if self.pool.grow(text.table, end):
                runs.append(self._run(tokens[text.num_read : end], text.num_read, text, 0))
                text.num_read = end
                budget -= count
        if runs:
            self._runner.run(runs)
        for draft in drafts:
            text = draft.text
            self.pool.publish_text(text.table, text.hashes, draft.sequence.tokens, text.num_read)

    def _run(self, tokens: Seq[int], start: int, text: _Text, num_logits: int) -> Run:
        # Tokens the draft has no embedding for become its last: padded vocabularies differ.
        last = self._runner.vocab_size - 1
        return Run([min(token, last) for token in tokens], start, text.table, num_logits)

    def _may_start(self, draft: GrowingDraft[_Text]) -> bool:
        num_unread = len(draft.sequence.tokens) - draft.text.num_read
        return num_unread <= self._runner.min_rows + 1 and self._may_continue(draft)

    def _may_continue(self, draft: GrowingDraft[_Text]) -> bool:
        end = len(draft.sequence.tokens) + len(draft.tokens)
        return (
            draft.wants_more and end <= self._max_context and self.pool.grow(draft.text.table, end)
        )

    def _draft_one(self, active: Seq[GrowingDraft[_Text]]) -> None:
        """One more token for all sequences that are still drafting, in one batch."""
        runs = []
        for draft in active:
            text, tokens = draft.text, draft.sequence.tokens
            new = [*tokens[text.num_read :], *draft.tokens[len(text.guesses) :]]
            runs.append(self._run(new, text.num_read + len(text.guesses), text, 1))
            text.num_read = len(tokens)
            text.guesses = list(draft.tokens)
        self._sampler.draw(active, self._runner.run(runs).logits)
