"""The rules, each by itself: small rounds whose outcome can be written down."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from outdraft.engine.sampling import Row, Stream, draw, noise_key, uniforms
from outdraft.engine.sequence import SamplingParams, Sequence
from outdraft.engine.step import Round
from outdraft.engine.verify import (
    acceptance_mask,
    keep_agreeing,
    residual,
    typical_mask,
    verify,
)

CPU = torch.device("cpu")
RULES = ("coupled", "rejection", "typical")
COLD, HOT = SamplingParams(), SamplingParams(temperature=1.0)


def sequence(seed: int, params: SamplingParams = HOT, length: int = 1) -> Sequence:
    return Sequence(seed, "r", 0, [0] * length, 1, params, seed, frozenset())


def sharp(*tokens: int, size: int = 6) -> Tensor:
    """Logits whose largest are `tokens`, one row each."""
    return torch.nn.functional.one_hot(torch.tensor(tokens), size).float() * 5


def test_coupled_keeps_the_targets_draws() -> None:
    drawn = [*[1, 2, 3], *[7, 8, 9], *[4], *[4, 5, 6]]
    drafts: list[list[int]] = [[1, 2], [0, 8], [], [4, 0]]
    round_ = Round([sequence(seed) for seed in range(4)], drafts)
    # All accepted and one more; the first refused; nothing proposed; the second refused.
    assert keep_agreeing(round_, drawn) == [[1, 2, 3], [7], [4], [4, 5]]
    assert keep_agreeing(Round([], []), []) == []


@pytest.mark.parametrize("rule", RULES)
def test_greedy_is_the_same_under_every_rule(rule: str) -> None:
    sequences = [sequence(seed, COLD) for seed in range(4)]
    drafts = [(1, 2), (1, 3), (0,), ()]
    processed = sharp(*[1, 2, 3], *[1, 2, 3], *[4, 5], *[0])
    emitted = verify(rule, processed, Round(sequences, drafts))
    assert emitted == [[1, 2, 3], [1, 2], [4], [0]]


@pytest.mark.parametrize("rule", RULES)
def test_greedy_and_drawn_side_by_side(rule: str) -> None:
    """A cold sequence is not disturbed by hot neighbours, and the other way round."""
    logits = torch.randn(4, 6, generator=torch.Generator().manual_seed(2))
    for token in range(6):
        both = Round([sequence(3), sequence(4, COLD)], [(token,), (token,)])
        emitted = verify(rule, logits, both)
        for index in range(2):
            alone = Round([both.rows[2 * index].sequence], [(token,)])
            part = logits[2 * index : 2 * index + 2]
            assert verify(rule, part, alone) == [emitted[index]]
        best = logits[2:].argmax(1).tolist()
        assert emitted[1] == ([token, best[1]] if token == best[0] else [best[0]])


@pytest.mark.parametrize("rule", RULES)
def test_without_drafts_every_rule_is_a_plain_draw(rule: str) -> None:
    sequences = [sequence(seed) for seed in range(50)]
    logits = torch.randn(50, 6, generator=torch.Generator().manual_seed(0))
    round_ = Round(sequences, [()] * 50)
    drawn = [[token] for token in draw(logits, round_.rows).tolist()]
    assert verify(rule, logits, round_) == drawn
    # One neighbour that has a draft must not change the others' text.
    mixed = Round([*sequences, sequence(99)], [*[()] * 50, (1,)])
    assert verify(rule, torch.cat([logits, torch.zeros(2, 6)]), mixed)[:50] == drawn


def test_coupled_text_does_not_depend_on_the_draft() -> None:
    """Row j is given the drafts before it: where they are right, the draws are the text."""
    logits = torch.randn(7, 6, generator=torch.Generator().manual_seed(1))  # by last token

    def text(seed: int, propose: Tensor) -> list[int]:
        one = sequence(seed)
        while len(one) < 9:
            draft = tuple(int(t) for t in propose[len(one)])
            round_ = Round([one], [draft])
            last = [one.tokens[-1], *draft]
            one.tokens += verify("coupled", logits[last], round_)[0]
        return one.tokens[:9]

    generator = torch.Generator().manual_seed(5)
    for seed in range(20):
        plain = text(seed, torch.empty(9, 0))
        for k in (1, 2, 4):
            assert text(seed, torch.randint(6, (9, k), generator=generator)) == plain
    assert text(0, torch.empty(9, 0)) != text(1, torch.empty(9, 0))


def test_rejection_accepts_by_its_coin() -> None:
    rows = [Row(sequence(seed)) for seed in range(200)]
    coins = uniforms([noise_key(s, 1, Stream.ACCEPT) for s in range(200)], 1, CPU)[:, 0]
    p, q = torch.tensor([0.3, 0.7]), torch.tensor([0.6, 0.4])
    for token in range(2):
        round_ = Round([row.sequence for row in rows], [(token,)] * 200, q.repeat(200, 1))
        emitted = verify("rejection", p.log().repeat(400, 1), round_)
        accepted = torch.tensor([len(tokens) == 2 for tokens in emitted])
        assert torch.equal(accepted, coins < p[token] / q[token])
        # What replaces a refused 0 can only be 1: the residual has nothing else.
        assert all(tokens[0] == 1 for tokens in emitted if len(tokens) == 1)


def test_acceptance_mask() -> None:
    p = torch.tensor([0.5, 0.2, 0.0, 0.4, 0.4])
    q = torch.tensor([0.5, 0.4, 0.3, 0.1, 1.0])
    coins = torch.tensor([0.999999, 0.6, 1e-9, 0.9, 0.39])
    assert acceptance_mask(p, q, coins).tolist() == [True, False, False, True, True]


def test_residual() -> None:
    p = torch.tensor([[0.5, 0.5, 0.0], [0.2, 0.3, 0.5], [0.1, 0.2, 0.7]])
    q = torch.tensor([[1.0, 0.0, 0.0], [0.2, 0.3, 0.5], [0.4, 0.1, 0.5]])
    expected = torch.tensor([[0.0, 1.0, 0.0], [0.2, 0.3, 0.5], [0.0, 1 / 3, 2 / 3]])
    assert torch.allclose(residual(p, q), expected)
    assert residual(p, q).isfinite().all()
    tiny = torch.tensor([[0.5, 0.5 - 1e-7, 1e-7]])
    left = residual(tiny, torch.tensor([[0.5, 0.5, 0.0]]))
    assert torch.allclose(left.sum(1), torch.ones(1))


def test_typical_mask() -> None:
    sure = torch.tensor([0.97, 0.01, 0.01, 0.01])
    even = torch.full((4,), 0.25)
    p_all = torch.stack([sure, sure, even, torch.tensor([1.0, 0.0, 0.0, 0.0])])
    p = torch.tensor([0.97, 0.01, 0.25, 0.0])
    # Sure: at least 0.09. Even: at least 0.3 · exp(-log 4) = 0.075.
    assert typical_mask(p_all, p, 0.09, 0.3).tolist() == [True, False, True, False]
    assert typical_mask(even[None], torch.tensor([0.0751]), 0.09, 0.3).item()
    assert not typical_mask(even[None], torch.tensor([0.0749]), 0.09, 0.3).item()


def test_typical_uses_its_two_settings() -> None:
    logits = torch.tensor([0.05, 0.95]).log().repeat(2, 1)
    round_ = Round([sequence(1)], [(0,)])
    strict = verify("typical", logits, round_)
    lenient = verify("typical", logits, round_, posterior_threshold=0.01)
    assert (len(strict[0]), len(lenient[0])) == (1, 2)


def test_an_unknown_rule_is_a_programming_error() -> None:
    with pytest.raises(ValueError, match="no such rule: exact"):
        verify("exact", torch.zeros(2, 3), Round([sequence(0)], [(1,)]))


def test_disjoint_supports_are_always_refused() -> None:
    logits = torch.tensor([[0.0, 0.0, -math.inf, -math.inf]]).repeat(200, 1)
    round_ = Round([sequence(seed) for seed in range(100)], [(2,)] * 100)
    for rule in RULES:
        emitted = verify(rule, logits, round_)
        assert all(len(tokens) == 1 and tokens[0] < 2 for tokens in emitted)
