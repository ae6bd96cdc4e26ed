"""Suites that every implementation of a seam passes: subclass one, get its tests.

    class TestMyProposer(ProposerContract):
        def make_proposer(self) -> Proposer:
            return MyProposer()

pytest collects the inherited `test_…` methods. They hold for any proposer, good or bad:
what a proposer guesses is its own affair, how it behaves is not.
"""

from __future__ import annotations

import random

import torch

from outdraft.engine.proposers.draft_model import DraftModelProposer
from outdraft.engine.proposers.eagle import EagleProposer
from outdraft.engine.proposers.proposer import Ask, Draft, Proposer
from outdraft.engine.sequence import SamplingParams, Sequence

WITH_POOL = (DraftModelProposer, EagleProposer)


class ProposerContract:
    vocab_size = 32  # token ids in the texts are below this
    max_prompt = 40
    params = SamplingParams()  # how the texts' sequences want their tokens drawn

    def make_proposer(self) -> Proposer:
        """A new proposer that knows nothing yet; called several times in a test."""
        raise NotImplementedError

    def show(self, proposer: Proposer, sequence: Sequence) -> None:
        """What an engine lets a proposer see before it asks: all tokens but the last were computed.

        For an `Observer`: show it the hidden states of those that it has not seen.
        """

    # ------------------------------------------------------------ texts

    def sequence(self, number: int, tokens: list[int]) -> Sequence:
        return Sequence(
            id=number,
            request_id=f"req-{number}",
            index=0,
            tokens=list(tokens),
            num_prompt_tokens=max(1, len(tokens) // 2),
            params=self.params,
            seed=number,
            stop_ids=frozenset(),
        )

    def text(self, seed: int, length: int | None = None) -> list[int]:
        """Repeats itself with changes, so that whoever matches texts has something to match."""
        choose = random.Random(seed)
        phrase = [choose.randrange(self.vocab_size) for _ in range(6)]
        tokens: list[int] = []
        while len(tokens) < (length or self.max_prompt):
            tokens += phrase if choose.random() < 0.8 else [choose.randrange(self.vocab_size)]
        return tokens[: length or self.max_prompt]

    def write_on(self, sequence: Sequence, draft: Draft, num_accepted: int) -> None:
        """What a round does to a text: some of the drafts, then a token of the target's."""
        choose = random.Random(len(sequence))
        sequence.tokens += draft.tokens[:num_accepted]
        sequence.tokens.append(choose.randrange(self.vocab_size))

    def ask(self, proposer: Proposer, *asks: Ask) -> list[Draft]:
        """Proposes, and checks all that must hold for any answer."""
        for ask in asks:
            self.show(proposer, ask.sequence)
        before = [list(ask.sequence.tokens) for ask in asks]
        drafts = proposer.propose(asks)
        assert [ask.sequence.tokens for ask in asks] == before, "the text was changed"
        assert len(drafts) == len(asks), "one draft per ask"
        for ask, draft in zip(asks, drafts, strict=True):
            assert len(draft.tokens) <= ask.k, "at most k tokens"
            assert all(type(token) is int for token in draft.tokens)
            assert all(0 <= token < self.vocab_size for token in draft.tokens)
            if draft.probs is not None:
                self.check_probs(draft.tokens, draft.probs)
        self.check_pool(proposer)
        return drafts

    def check_probs(self, tokens: list[int], probs: torch.Tensor) -> None:
        assert probs.shape == (len(tokens), self.vocab_size)
        assert torch.allclose(probs.sum(1), torch.ones(len(tokens)), atol=1e-4)
        assert bool((probs >= 0).all())
        drawn = probs[range(len(tokens)), tokens]
        assert bool((drawn > 0).all()), "a token that its own distribution rules out"

    def check_pool(self, proposer: Proposer) -> None:
        if isinstance(proposer, WITH_POOL):
            proposer.pool.check(proposer.tables)

    # ------------------------------------------------------------ the contract

    def test_no_asks_no_drafts(self) -> None:
        assert self.make_proposer().propose([]) == []

    def test_the_shortest_text(self) -> None:
        proposer = self.make_proposer()
        self.ask(proposer, Ask(self.sequence(0, [1]), 4))

    def test_each_ask_has_its_own_k(self) -> None:
        proposer = self.make_proposer()
        sequences = [self.sequence(number, self.text(1)) for number in range(5)]
        drafts = self.ask(proposer, *(Ask(one, one.id) for one in sequences))
        assert drafts[0].tokens == []
        again = self.make_proposer()
        for one in sequences[1:]:
            longest = self.ask(again, Ask(self.sequence(90 + one.id, one.tokens), 4))[0].tokens
            if self.params.temperature == 0:  # nothing but k tells these asks apart
                assert drafts[one.id].tokens == longest[: one.id]

    def test_the_same_history_gives_the_same_drafts(self) -> None:
        drafts = []
        for proposer in (self.make_proposer(), self.make_proposer()):
            one = self.sequence(0, self.text(2))
            found = []
            for accepted in (9, 0, 1, 9, 2):
                [draft] = self.ask(proposer, Ask(one, 4))
                found.append(draft.tokens)
                assert self.ask(proposer, Ask(one, 4))[0].tokens == draft.tokens, "asked twice"
                self.write_on(one, draft, accepted)
            drafts.append(found)
        assert drafts[0] == drafts[1]

    def test_catches_up_after_not_being_asked(self) -> None:
        """Speculation may be switched off and on in the middle of a text."""
        for pause in (1, 7, 30):
            proposer = self.make_proposer()
            one = self.sequence(0, self.text(3, self.max_prompt // 2))
            [draft] = self.ask(proposer, Ask(one, 3))
            self.write_on(one, draft, 1)
            one.tokens += self.text(4, pause)
            [late] = self.ask(proposer, Ask(one, 3))
            fresh = self.sequence(0, one.tokens)
            fresh.num_prompt_tokens = one.num_prompt_tokens
            [expected] = self.ask(self.make_proposer(), Ask(fresh, 3))
            assert late.tokens == expected.tokens

    def test_company_makes_no_difference(self) -> None:
        together = self.make_proposer()
        texts = [self.sequence(number, self.text(number)) for number in range(4)]
        alone = [(self.make_proposer(), self.sequence(n, self.text(n))) for n in range(4)]
        for round_ in range(4):
            asked = [one for one in texts if (one.id + round_) % 3 or round_ == 3]
            drafts = self.ask(together, *(Ask(one, 4) for one in asked))
            for one, draft in zip(asked, drafts, strict=True):
                proposer, same = alone[one.id]
                assert self.ask(proposer, Ask(same, 4))[0].tokens == draft.tokens
                self.write_on(one, draft, round_)
                self.write_on(same, draft, round_)

    def test_release_is_harmless_when_unknown_or_repeated(self) -> None:
        proposer = self.make_proposer()
        one, other = self.sequence(0, self.text(5)), self.sequence(1, self.text(6))
        proposer.release(other)
        self.ask(proposer, Ask(one, 4))
        proposer.release(one)
        proposer.release(one)
        proposer.release(other)
        self.check_pool(proposer)
        self.ask(proposer, Ask(self.sequence(2, self.text(5)), 4))

    def test_release_gives_everything_back(self) -> None:
        proposer = self.make_proposer()
        texts = [self.sequence(number, self.text(number)) for number in range(4)]
        for accepted in range(3):
            drafts = self.ask(proposer, *(Ask(one, 4) for one in texts))
            for one, draft in zip(texts, drafts, strict=True):
                self.write_on(one, draft, accepted)
        for one in texts:
            proposer.release(one)
            self.check_pool(proposer)
        if isinstance(proposer, WITH_POOL):
            assert proposer.tables == []
            assert proposer.pool.num_used == 0

    def test_an_id_may_come_again(self) -> None:
        """After a release the id means nothing: another text under it is another text."""
        proposer = self.make_proposer()
        first = self.sequence(0, self.text(7))
        self.ask(proposer, Ask(first, 4))
        proposer.release(first)
        proposer.forget()
        second = self.sequence(0, self.text(8))
        [draft] = self.ask(proposer, Ask(second, 4))
        [expected] = self.ask(self.make_proposer(), Ask(self.sequence(0, self.text(8)), 4))
        assert draft.tokens == expected.tokens

    def test_forget_leaves_running_texts_valid(self) -> None:
        proposer = self.make_proposer()
        earlier = self.sequence(0, self.text(9))
        self.ask(proposer, Ask(earlier, 4))
        proposer.release(earlier)
        running = self.sequence(1, self.text(10))
        [draft] = self.ask(proposer, Ask(running, 4))
        self.write_on(running, draft, 2)
        proposer.forget()
        self.check_pool(proposer)
        [draft] = self.ask(proposer, Ask(running, 4))
        same = self.sequence(1, running.tokens)
        same.num_prompt_tokens = running.num_prompt_tokens
        [expected] = self.ask(self.make_proposer(), Ask(same, 4))
        assert draft.tokens == expected.tokens, "something of earlier texts was left"
        proposer.release(running)
        self.check_pool(proposer)
