"""The suite that every proposer passes: subclass it, get its tests.

    class TestMyProposer(ProposerContract):
        def make_proposer(self) -> Proposer:
            return MyProposer()

pytest collects the inherited `test_…` methods. They test how a proposer behaves, not how good its
drafts are.
"""

import random

import torch

from outdraft.engine.confidence import GRADES, Trust
from outdraft.engine.proposers.cached import CachedProposer
from outdraft.engine.proposers.proposer import DraftRequest, Proposal, Proposer
from outdraft.engine.sequence import SamplingParams, Sequence


class ProposerContract:
    vocab_size = 32  # token ids are below this
    max_prompt = 40
    params = SamplingParams()  # of every sequence

    def make_proposer(self) -> Proposer:
        """A new proposer without history; called several times in a test."""
        raise NotImplementedError

    def show(self, proposer: Proposer, sequence: Sequence) -> None:
        """Called before each proposal, as an engine would: all tokens but the last were computed.

        For an `Observer`: show it the hidden states of those that it has not seen.
        """

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

    def fresh_copy(self, sequence: Sequence) -> Sequence:
        """The same sequence, for a proposer that has not seen it."""
        copy = self.sequence(sequence.id, sequence.tokens)
        copy.num_prompt_tokens = sequence.num_prompt_tokens
        return copy

    def text(self, seed: int, length: int | None = None) -> list[int]:
        """Tokens that repeat with changes, so that lookup proposers find matches."""
        choose = random.Random(seed)
        phrase = [choose.randrange(self.vocab_size) for _ in range(6)]
        tokens: list[int] = []
        while len(tokens) < (length or self.max_prompt):
            tokens += phrase if choose.random() < 0.8 else [choose.randrange(self.vocab_size)]
        return tokens[: length or self.max_prompt]

    def texts(self, count: int) -> list[Sequence]:
        return [self.sequence(number, self.text(number)) for number in range(count)]

    def finish_round(self, sequence: Sequence, draft: Proposal, num_accepted: int) -> None:
        """Appends the accepted draft tokens and one token of the target's."""
        own = random.Random(len(sequence)).randrange(self.vocab_size)
        sequence.tokens += [*draft.tokens[:num_accepted], own]

    def draft(self, proposer: Proposer, sequence: Sequence, k: int = 4) -> Proposal:
        return self.propose(proposer, DraftRequest(sequence, k))[0]

    def propose(self, proposer: Proposer, *requests: DraftRequest) -> list[Proposal]:
        """Proposes, and checks all that must hold for any proposal."""
        for request in requests:
            self.show(proposer, request.sequence)
        before = [list(request.sequence.tokens) for request in requests]
        drafts = proposer.propose(requests)
        assert [request.sequence.tokens for request in requests] == before, "tokens were changed"
        assert len(drafts) == len(requests), "one draft per request"
        for request, draft in zip(requests, drafts, strict=True):
            assert len(draft.tokens) <= request.k, "at most k tokens"
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
        assert bool((drawn > 0).all()), "a token with probability 0 was drawn"

    def check_pool(self, proposer: Proposer) -> None:
        if isinstance(proposer, CachedProposer):
            proposer.pool.check(proposer.tables)

    def test_no_requests_no_drafts(self) -> None:
        assert self.make_proposer().propose([]) == []

    def test_a_text_of_one_token(self) -> None:
        self.draft(self.make_proposer(), self.sequence(0, [1]))

    def test_each_request_has_its_own_k(self) -> None:
        sequences = [self.sequence(number, self.text(1)) for number in range(5)]
        requests = [DraftRequest(one, k=one.id) for one in sequences]
        drafts = self.propose(self.make_proposer(), *requests)
        assert drafts[0].tokens == []
        again = self.make_proposer()
        for one in sequences[1:]:
            longest = self.draft(again, self.sequence(90 + one.id, one.tokens))
            if self.params.temperature == 0:  # nothing but k tells these requests apart
                assert drafts[one.id].tokens == longest.tokens[: one.id]

    def test_a_draft_that_stops_early_is_the_beginning_of_a_longer_one(self) -> None:
        """A proposer that says how sure it is does so of every token; others write as ever."""
        drafts = []
        for chance, floor in ((1.0, 0.0), (0.5, 0.3), (0.5, 0.9)):
            trust = Trust((chance,) * GRADES, floor)
            one = self.sequence(0, self.text(1))
            [draft] = self.propose(self.make_proposer(), DraftRequest(one, 4, trust))
            assert len(draft.grades) in (0, len(draft.tokens))
            assert all(0 <= grade < GRADES for grade in draft.grades)
            drafts.append(draft)
        whole, some, least = drafts
        assert whole.tokens == self.draft(self.make_proposer(), one).tokens
        assert some.tokens == whole.tokens[: 2 if some.grades else None]
        assert least.tokens == whole.tokens[: 1 if least.grades else None]

    def test_the_same_history_gives_the_same_drafts(self) -> None:
        histories = []
        for proposer in (self.make_proposer(), self.make_proposer()):
            one = self.sequence(0, self.text(2))
            history = []
            for num_accepted in (9, 0, 1, 9, 2):
                draft = self.draft(proposer, one)
                history.append(draft.tokens)
                assert self.draft(proposer, one).tokens == draft.tokens, "requested twice"
                self.finish_round(one, draft, num_accepted)
            histories.append(history)
        assert histories[0] == histories[1]

    def test_catches_up_after_a_pause(self) -> None:
        """Speculation may be switched off and on in the middle of a text."""
        for pause in (1, 7, 30):
            proposer = self.make_proposer()
            one = self.sequence(0, self.text(3, self.max_prompt // 2))
            self.finish_round(one, self.draft(proposer, one, 3), 1)
            one.tokens += self.text(4, pause)
            late = self.draft(proposer, one, 3)
            expected = self.draft(self.make_proposer(), self.fresh_copy(one), 3)
            assert late.tokens == expected.tokens

    def test_a_draft_does_not_depend_on_the_rest_of_the_batch(self) -> None:
        together, sequences = self.make_proposer(), self.texts(4)
        alone = [(self.make_proposer(), one) for one in self.texts(4)]
        for round_ in range(4):
            batch = [one for one in sequences if (one.id + round_) % 3 or round_ == 3]
            drafts = self.propose(together, *(DraftRequest(one, 4) for one in batch))
            for one, draft in zip(batch, drafts, strict=True):
                proposer, same = alone[one.id]
                assert self.draft(proposer, same).tokens == draft.tokens
                self.finish_round(one, draft, round_)
                self.finish_round(same, draft, round_)

    def test_release_is_harmless_when_unknown_or_repeated(self) -> None:
        proposer = self.make_proposer()
        one, other = self.sequence(0, self.text(5)), self.sequence(1, self.text(6))
        proposer.release(other)
        self.draft(proposer, one)
        for each in (one, one, other):
            proposer.release(each)
        self.check_pool(proposer)
        self.draft(proposer, self.sequence(2, self.text(5)))

    def test_release_gives_everything_back(self) -> None:
        proposer, sequences = self.make_proposer(), self.texts(4)
        for num_accepted in range(3):
            drafts = self.propose(proposer, *(DraftRequest(one, 4) for one in sequences))
            for one, draft in zip(sequences, drafts, strict=True):
                self.finish_round(one, draft, num_accepted)
        for one in sequences:
            proposer.release(one)
            self.check_pool(proposer)
        if isinstance(proposer, CachedProposer):
            assert proposer.tables == []
            assert proposer.pool.num_used == 0

    def test_an_id_may_be_used_again(self) -> None:
        """After a release, another text may have the same id."""
        proposer = self.make_proposer()
        first, second = self.sequence(0, self.text(7)), self.sequence(0, self.text(8))
        self.draft(proposer, first)
        proposer.release(first)
        proposer.forget()
        draft = self.draft(proposer, second)
        expected = self.draft(self.make_proposer(), self.fresh_copy(second))
        assert draft.tokens == expected.tokens

    def test_forget_leaves_running_texts_valid(self) -> None:
        proposer = self.make_proposer()
        earlier, running = self.sequence(0, self.text(9)), self.sequence(1, self.text(10))
        self.draft(proposer, earlier)
        proposer.release(earlier)
        self.finish_round(running, self.draft(proposer, running), 2)
        proposer.forget()
        self.check_pool(proposer)
        draft = self.draft(proposer, running)
        expected = self.draft(self.make_proposer(), self.fresh_copy(running))
        assert draft.tokens == expected.tokens, "something of earlier texts was left"
        proposer.release(running)
        self.check_pool(proposer)
