"""Whoever drafts, the text is a draw from the target: chi-square over as many draws as find every
planted error, and slowly over 100,000 and more.

A world of five tokens: target and draft are tables of logits by the token before, so the
exact probability of every two-token text is known. Many sequences with seeds of their own go
through the real draw and the real `verify`, two drafts a round, round after round until they
have two tokens: noise that a refused draft used up and that comes back would show here.
Planted errors (at the end) show that the same test would catch a wrong rule.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy import stats
from torch import Tensor

from outdraft.engine import sampling
from outdraft.engine import verify as verify_module
from outdraft.engine.sampling import Row, Stream, draw, noise_key, probabilities, processed_logits
from outdraft.engine.sequence import SamplingParams, Sequence
from outdraft.engine.step import Round
from outdraft.engine.verify import verify

V = 5  # tokens in this world
K = 2  # drafts in a round
LENGTH = 2  # tokens looked at
FEW, MANY = 13_000, 52_000  # sequences, each of them LENGTH draws
PASS, FAIL = 1e-4, 1e-6

PREFIXES = [text for n in range(LENGTH + K) for text in product(range(V), repeat=n)]
PLACE = {text: place for place, text in enumerate(PREFIXES)}
# (prefix, next token) → the longer prefix
LONGER = torch.tensor([[PLACE.get((*text, token), 0) for token in range(V)] for text in PREFIXES])


def table(seed: int, scale: float = 1.5) -> Tensor:
    return torch.randn(V, V, generator=torch.Generator().manual_seed(seed)) * scale


def halves(low: bool) -> Tensor:
    """Only the tokens below 2, or only the others: two such tables have nothing in common."""
    mask = torch.arange(V) < 2
    return table(7).masked_fill(mask if not low else ~mask, float("-inf"))


TARGET = table(0)
PAIRS: dict[str, tuple[Tensor, Tensor]] = {
    "identical": (TARGET, TARGET),
    "near": (TARGET, TARGET + 0.3 * table(1, 1.0)),
    "far": (TARGET, table(2, 2.0)),
    "disjoint": (halves(True), halves(False)),
}
PARAMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "top_p": {"top_p": 0.75},
    "penalties": {"frequency_penalty": 0.9, "presence_penalty": 0.4, "repetition_penalty": 1.4},
    "all": {"temperature": 0.7, "top_k": 4, "min_p": 0.02, "frequency_penalty": 1.0},
}


@dataclass(frozen=True)
class Outcome:
    texts: npt.NDArray[np.int64]  # (count, LENGTH)
    acceptance: float  # of first drafts
    expected: npt.NDArray[np.float64]  # (V, V): probability of every text

    def pvalue(self) -> float:
        seen = np.zeros((V, V))
        np.add.at(seen, (self.texts[:, 0], self.texts[:, 1]), 1)
        wanted = self.expected * len(self.texts)
        if seen[wanted == 0].any():
            return 0.0
        common = wanted >= 5
        rare = (wanted > 0) & ~common
        pooled = [(seen[rare].sum(), wanted[rare].sum())] if rare.any() else []
        observed, theory = np.array([*zip(seen[common], wanted[common], strict=True), *pooled]).T
        return float(stats.chisquare(observed, theory * (observed.sum() / theory.sum())).pvalue)


def processed_table(logits: Tensor, params: SamplingParams) -> Tensor:
    """(prefixes, V): the processed logits behind every beginning of a text."""
    start = Sequence(0, "r", 0, [0], 1, params, 0, frozenset())
    last = [text[-1] if text else 0 for text in PREFIXES]
    return processed_logits(logits[last], [Row(start, text) for text in PREFIXES])


_KEYS = cache(noise_key)


@pytest.fixture(autouse=True)
def _keys_are_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same seeds come again in every case, and keys are half of the time."""
    for module in (sampling, verify_module):
        monkeypatch.setattr(module, "noise_key", _KEYS)


def simulate(
    rule: str,
    pair: str,
    given: str = "plain",
    *,
    sure: bool = False,
    draft_stream: Stream | None = None,
    count: int = FEW,
) -> Outcome:
    """`sure`: the draft proposes its favourite and gives no probabilities, as n-grams do."""
    params = SamplingParams(**{"temperature": 1.0, **PARAMS[given]})
    target, draft = (processed_table(logits, params) for logits in PAIRS[pair])
    gc.disable()  # hundreds of thousands of rows, none of them in a cycle
    sequences = [Sequence(i, "r", 0, [0], 1, params, 77 + i, frozenset()) for i in range(count)]
    if draft_stream is None:
        draft_stream = Stream.DRAFT if rule == "rejection" else Stream.TOKEN
    live, firsts = sequences, []
    while live:
        places = [torch.tensor([PLACE[tuple(one.tokens[1:])] for one in live])]
        drafts: list[tuple[int, ...]] = [()] * len(live)
        for _ in range(K):
            processed = draft[places[-1]]
            rows = [Row(one, tokens) for one, tokens in zip(live, drafts, strict=True)]
            drawn = processed.argmax(1) if sure else draw(processed, rows, draft_stream)
            drafts = [(*old, new) for old, new in zip(drafts, drawn.tolist(), strict=True)]
            places.append(LONGER[places[-1], drawn])
        at = torch.stack(places, 1)  # (sequences, K + 1)
        known = [Row(one, d[:n]) for one, d in zip(live, drafts, strict=True) for n in range(K)]
        q = None if sure else probabilities(draft[at[:, :K].flatten()], known)
        emitted = verify(rule, target[at.flatten()], Round(live, drafts, q))
        for one, tokens in zip(live, emitted, strict=True):
            if len(one) == 1:
                firsts.append(len(tokens) > 1)
            one.tokens += tokens
        live = [one for one in live if len(one) < 1 + LENGTH]
    first = target[0].double().softmax(0)
    second = target[[PLACE[(token,)] for token in range(V)]].double().softmax(1)
    texts = np.array([one.tokens[1 : 1 + LENGTH] for one in sequences])
    gc.enable()
    return Outcome(texts, float(np.mean(firsts)), (first[:, None] * second).numpy())


counts = pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])


@counts
@pytest.mark.parametrize(
    ("rule", "pair"),
    [*(("rejection", pair) for pair in PAIRS), ("coupled", "near"), ("coupled", "disjoint")],
)
def test_texts_are_the_targets(rule: str, pair: str, count: int) -> None:
    assert simulate(rule, pair, count=count).pvalue() > PASS


@counts
@pytest.mark.parametrize(
    ("rule", "given"),
    [*(("rejection", given) for given in ("plain", "top_p", "penalties")), ("coupled", "plain")],
)
def test_texts_are_the_targets_when_the_draft_is_sure(rule: str, given: str, count: int) -> None:
    assert simulate(rule, "near", given, sure=True, count=count).pvalue() > PASS


@counts
@pytest.mark.parametrize(
    ("rule", "given"),
    [
        *(("rejection", given) for given in ("top_p", "penalties", "all")),
        *(("coupled", given) for given in ("top_p", "penalties")),
    ],
)
def test_texts_are_the_targets_with_parameters(rule: str, given: str, count: int) -> None:
    outcome = simulate(rule, "near", given, count=count)
    assert outcome.pvalue() > PASS
    if given != "penalties":
        assert (outcome.expected == 0).any()  # something was cut


def test_coupled_texts_do_not_depend_on_the_draft() -> None:
    pairs = [name for name, (target, _) in PAIRS.items() if target is TARGET]
    texts = [simulate("coupled", pair, count=4000).texts for pair in pairs]
    assert all((one == texts[0]).all() for one in texts)


def test_acceptance_is_what_theory_says() -> None:
    """Rejection accepts 1 - TV, the most possible; coupling at least (1 - TV) / (1 + TV)."""
    p, q = (logits[0].double().softmax(0) for logits in PAIRS["near"])
    best = float(torch.minimum(p, q).sum())
    error = 4.5 * 0.5 / FEW**0.5
    assert abs(simulate("rejection", "near").acceptance - best) < error
    coupled = simulate("coupled", "near").acceptance
    assert best / (2 - best) - error < coupled < best + error
    # A draft with noise of its own is no less exact under coupling, only of less use.
    apart = simulate("coupled", "near", draft_stream=Stream.DRAFT)
    assert abs(apart.acceptance - float((p * q).sum())) < error
    assert apart.acceptance < coupled - 0.1
    assert apart.pvalue() > PASS


def test_the_same_draft_is_always_accepted() -> None:
    for rule in ("coupled", "rejection"):
        assert simulate(rule, "identical", count=4000).acceptance == 1.0


# ---------------------------------------------------------------- it would be seen


def test_typical_is_not_the_target() -> None:
    for sure in (False, True):
        outcome = simulate("typical", "near", sure=sure)
        assert outcome.pvalue() < FAIL


Wrong = Callable[..., Tensor]
PLANTED: dict[str, tuple[str, Wrong]] = {
    "residual is p": ("residual", lambda p, q: p),
    "residual not cut at zero": ("residual", lambda p, q: (p - q).abs()),
    "always accepted": ("acceptance_mask", lambda p, q, coins: torch.ones_like(p).bool()),
    "accepted when likely": ("acceptance_mask", lambda p, q, coins: p >= q),
    "one coin for all": ("acceptance_mask", lambda p, q, coins: 0.5 * q < p),
}


@pytest.mark.parametrize("error", PLANTED)
def test_a_planted_error_is_found(monkeypatch: pytest.MonkeyPatch, error: str) -> None:
    name, wrong = PLANTED[error]
    monkeypatch.setattr(verify_module, name, wrong)
    assert simulate("rejection", "near").pvalue() < FAIL


def test_a_draft_that_shares_the_corrections_noise_is_found() -> None:
    """Why the rejection rule has streams of its own."""
    outcome = simulate("rejection", "far", draft_stream=Stream.TOKEN)
    assert outcome.pvalue() < FAIL
