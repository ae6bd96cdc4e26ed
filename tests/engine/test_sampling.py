"""Noise that is a function of (seed, position, stream, column), and logits processed as told.

The reference is written token by token in plain Python; statistics use fixed seeds, so a
test either always passes or never does.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from outdraft.engine.sampling import (
    Row,
    Stream,
    draw,
    gumbel_noise,
    noise_key,
    probabilities,
    processed_logits,
    row_noise,
    uniforms,
)
from outdraft.engine.sequence import SamplingParams, Sequence

CPU = torch.device("cpu")
PASS = 1e-4  # a right generator fails one such test in ten thousand; seeds are fixed


def sequence(
    params: SamplingParams, tokens: list[int], num_prompt: int, *, seed: int = 0, stop: int = -1
) -> Sequence:
    stop_ids = frozenset({stop} if stop >= 0 else ())
    return Sequence(0, "r", 0, tokens, num_prompt, params, seed, stop_ids)


# ---------------------------------------------------------------- noise


def test_noise_depends_on_nothing_but_its_key_and_column() -> None:
    keys = [noise_key(seed, t, Stream.TOKEN) for seed in (0, 1, -5, 2**63) for t in (0, 1, 999)]
    together = gumbel_noise(keys, 300, CPU)
    assert together.isfinite().all()
    for index, key in enumerate(keys):
        assert torch.equal(gumbel_noise([key], 300, CPU)[0], together[index])
        # A draft with a smaller vocabulary sees the same noise, as far as it goes.
        assert torch.equal(gumbel_noise([key], 17, CPU)[0], together[index, :17])
    assert len({tuple(row) for row in together.tolist()}) == len(keys)


def test_keys_differ_by_seed_position_and_stream() -> None:
    keys = {
        noise_key(seed, position, stream)
        for seed in range(-20, 20)
        for position in range(40)
        for stream in Stream
    }
    assert len(keys) == 40 * 40 * 3


def many(count: int, columns: int, stream: Stream = Stream.TOKEN, seed: int = 3) -> Tensor:
    return uniforms([noise_key(seed, t, stream) for t in range(count)], columns, CPU)


def test_uniforms_are_uniform() -> None:
    numbers = many(2000, 100)
    assert 0 < numbers.min() < 1e-4
    assert 1 - 1e-4 < numbers.max() < 1
    assert stats.kstest(numbers.flatten().numpy(), "uniform").pvalue > PASS
    # Column 0 alone is the coin of the rejection rule.
    assert stats.kstest(many(50_000, 1)[:, 0].numpy(), "uniform").pvalue > PASS
    # Every bit that float32 keeps is fair, not only the leading ones.
    bits = (numbers.flatten().double() * 2**20).long()
    for bit in range(20):
        ones = int((bits >> bit & 1).sum())
        assert stats.binomtest(ones, bits.numel()).pvalue > PASS


def test_small_uniforms_are_fine_grained() -> None:
    """Gumbel's upper tail: the largest of many draws must not fall on a coarse grid."""
    small = many(20_000, 100).flatten()
    small = small[small < 1e-4]
    assert len(small.unique()) > 0.98 * len(small)


def correlation(one: Tensor, other: Tensor) -> float:
    return float(np.corrcoef(one.flatten().numpy(), other.flatten().numpy())[0, 1])


def test_noise_is_independent_across_positions_seeds_streams_and_columns() -> None:
    numbers = many(4000, 50)
    limit = 4.5 / math.sqrt(numbers.numel() * 0.98)
    assert abs(correlation(numbers[:-1], numbers[1:])) < limit
    assert abs(correlation(numbers[:, :-1], numbers[:, 1:])) < limit
    for stream in (Stream.DRAFT, Stream.ACCEPT):
        assert abs(correlation(numbers, many(4000, 50, stream))) < limit
    for seed in (2, 4, -3):
        assert abs(correlation(numbers, many(4000, 50, seed=seed))) < limit
    # Positions of one seed against neighbouring positions of the next: no shared diagonals.
    assert abs(correlation(numbers[1:], many(4000, 50, seed=4)[:-1])) < limit


def test_gumbel_noise_is_gumbel() -> None:
    noise = gumbel_noise([noise_key(9, t, Stream.TOKEN) for t in range(4000)], 50, CPU)
    assert stats.kstest(noise.flatten().numpy(), "gumbel_r").pvalue > PASS


# ---------------------------------------------------------------- draws follow the distribution

CASES: dict[str, tuple[int, dict[str, Any]]] = {
    "plain": (8, {}),
    "wide": (50, {}),
    "cold": (8, {"temperature": 0.4}),
    "hot": (50, {"temperature": 1.7}),
    "top_p": (50, {"top_p": 0.8}),
    "top_k": (50, {"top_k": 7}),
    "min_p": (50, {"min_p": 0.05}),
    "penalties": (
        8,
        {"repetition_penalty": 1.3, "presence_penalty": 0.4, "frequency_penalty": 0.2},
    ),
    "logit_bias": (8, {"logit_bias": {0: 2.0, 5: -1.0}}),
    "all": (20, {"temperature": 0.8, "top_p": 0.9, "top_k": 12, "frequency_penalty": 0.5}),
}


@pytest.mark.parametrize("name", CASES)
def test_draws_follow_the_processed_distribution(name: str) -> None:
    size, given_params = CASES[name]
    params = SamplingParams(**{"temperature": 1.0, **given_params})
    logits = torch.randn(1, size, generator=torch.Generator().manual_seed(1)) * 1.5
    row = Row(sequence(params, [1, 2, 3, 3], 2), (4,))
    processed = processed_logits(logits.clone(), [row])
    expected = reference(logits[0].tolist(), row)
    count = 1 << 17
    keys = [noise_key(11, position, Stream.TOKEN) for position in range(count)]
    tokens = (processed + gumbel_noise(keys, size, CPU)).argmax(1)
    seen = torch.bincount(tokens, minlength=size).double().numpy()
    weights = np.exp(np.array(expected) - max(expected))
    share = weights / weights.sum()
    assert seen[share == 0].sum() == 0
    kept = share > 0
    assert stats.chisquare(seen[kept], share[kept] * count).pvalue > PASS


def test_draw_uses_each_rows_own_noise_and_none_when_cold() -> None:
    hot, cold = SamplingParams(temperature=1.0), SamplingParams()
    rows = [Row(sequence(p, [1] * n, 1, seed=7)) for n, p in ((2, hot), (2, cold), (5, hot))]
    processed = torch.randn(3, 30, generator=torch.Generator().manual_seed(0))
    drawn = draw(processed, rows)
    assert drawn[1] == processed[1].argmax()
    for index in (0, 2):
        assert draw(processed[index : index + 1], [rows[index]]) == drawn[index]
    assert row_noise([rows[1]], 30, CPU) is None
    noise = row_noise(rows, 30, CPU)
    assert noise is not None
    assert (noise[1] == 0).all()
    shares = probabilities(processed, rows)
    assert torch.allclose(shares.sum(1), torch.ones(3))
    assert shares[1].max() == 1.0


# ---------------------------------------------------------------- processed logits


class TooCloseError(Exception):
    """Which side of a cut a token falls on is a matter of rounding."""


def reference(logits: list[float], row: Row) -> list[float]:
    """What each rule says, one token after another."""
    params, prompt = row.params, row.sequence.tokens[: row.sequence.num_prompt_tokens]
    output = [*row.sequence.output, *row.drafts]
    written = Counter(output)
    values = list(logits)
    for token, value in enumerate(values):
        if token in written or token in prompt:
            penalty = params.repetition_penalty
            value = value / penalty if value > 0 else value * penalty
        value -= written[token] * params.frequency_penalty
        value -= params.presence_penalty if token in written else 0.0
        value += params.logit_bias.get(token, 0.0)
        if token in row.sequence.stop_ids and len(output) < params.min_tokens:
            value = -math.inf
        values[token] = value / params.temperature if params.temperature else value
    if params.temperature == 0:
        return values
    if params.min_p:
        values = cut(values, max(values) + math.log(params.min_p))
    if params.top_k:
        values = cut(values, sorted(values, reverse=True)[: params.top_k][-1])
    if params.top_p < 1:
        top = max(values)
        total = sum(math.exp(value - top) for value in values)
        running = 0.0
        for value in sorted(values, reverse=True):
            running += math.exp(value - top) / total
            if abs(running - params.top_p) < 1e-5:
                raise TooCloseError
            if running >= params.top_p:
                values = cut(values, value)
                break
    return values


def cut(values: list[float], floor: float) -> list[float]:
    if any(1e-12 < abs(value - floor) < 1e-4 for value in values):
        raise TooCloseError
    return [value if value >= floor - 1e-9 else -math.inf for value in values]


def assert_same(processed: Tensor, expected: list[float]) -> None:
    mine = processed.tolist()
    assert [v == -math.inf for v in mine] == [v == -math.inf for v in expected]
    finite = [(a, b) for a, b in zip(mine, expected, strict=True) if b != -math.inf]
    assert all(math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-4) for a, b in finite)


SIZE = 12
tokens_of = st.lists(st.integers(0, SIZE - 1), max_size=6)
# Multiples of a quarter: equal values are common, nearly equal ones are not.
some_logits = st.lists(st.integers(-24, 24).map(lambda x: x / 4), min_size=SIZE, max_size=SIZE)
some_params = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.5, 0.7, 1.0, 1.3]),
    top_k=st.sampled_from([0, 0, 1, 2, 5, SIZE, 99]),
    top_p=st.sampled_from([1.0, 1.0, 1e-6, 0.3, 0.8, 0.999]),
    min_p=st.sampled_from([0.0, 0.0, 0.011, 0.21, 1.0]),
    repetition_penalty=st.sampled_from([1.0, 0.5, 1.5, 2.0]),
    presence_penalty=st.sampled_from([0.0, 0.5, -1.0]),
    frequency_penalty=st.sampled_from([0.0, 0.25, -0.5]),
    logit_bias=st.dictionaries(st.integers(0, SIZE - 1), st.sampled_from([-3.0, 0.5, 8.0])),
    min_tokens=st.integers(0, 6),
)
some_rows = st.tuples(some_params, tokens_of, tokens_of, tokens_of, st.integers(-1, SIZE - 1))


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(some_logits, some_rows), min_size=1, max_size=4))
def test_processed_logits_equal_the_reference(batch: list[tuple[list[float], Any]]) -> None:
    """Rows of every kind side by side, each as if it were alone."""
    rows = [
        Row(sequence(params, [*prompt, *output], len(prompt), stop=stop), tuple(drafts))
        for _, (params, prompt, output, drafts, stop) in batch
    ]
    try:
        expected = [reference(logits, row) for (logits, _), row in zip(batch, rows, strict=True)]
    except TooCloseError:
        reject()
    processed = processed_logits(torch.tensor([logits for logits, _ in batch]), rows)
    for mine, theirs in zip(processed, expected, strict=True):
        assert_same(mine, theirs)


def one(logits: list[float] | Tensor, *, stop: int = -1, **given: Any) -> Tensor:
    params = SamplingParams(**{"temperature": 1.0, **given})
    row = Row(sequence(params, [0], 1, stop=stop))
    return processed_logits(torch.as_tensor(logits, dtype=torch.float32)[None].clone(), [row])[0]


def kept(processed: Tensor) -> list[int]:
    return processed.isfinite().nonzero()[:, 0].tolist()


def test_penalties_see_the_drafts_before_the_row() -> None:
    start = sequence(SamplingParams(temperature=1.0, frequency_penalty=1.0), [9, 1], 1)
    rows = [Row(start, drafts) for drafts in ((), (1,), (1, 2), (1, 2, 1))]
    processed = processed_logits(torch.zeros(4, 10), rows)
    assert processed[:, 1].tolist() == [-1, -2, -2, -3]
    assert processed[:, 2].tolist() == [0, 0, -1, -1]
    assert processed[:, 9].tolist() == [0, 0, 0, 0]  # the prompt is no output


def test_min_tokens_bans_stop_tokens_until_enough_are_drafted() -> None:
    start = sequence(SamplingParams(min_tokens=3), [0, 1], 1, stop=2)  # one written so far
    rows = [Row(start, (1,) * count) for count in range(4)]
    banned = processed_logits(torch.zeros(4, 5), rows)[:, 2] == -math.inf
    assert banned.tolist() == [True, True, False, False]


def test_edges_of_truncation() -> None:
    ramp = [0.0, 3.0, 1.0, 2.0]
    assert kept(one(ramp, top_k=1)) == [1]
    assert kept(one(ramp, top_p=1e-9)) == [1]
    assert kept(one(ramp, min_p=1.0)) == [1]
    assert kept(one(ramp, top_k=4)) == kept(one(ramp, top_k=1000)) == [0, 1, 2, 3]
    # Nothing tells equal tokens apart, so all of them stay.
    assert kept(one([1.0] * 5, top_k=2)) == kept(one([1.0] * 5, top_p=0.1)) == [0, 1, 2, 3, 4]
    assert kept(one(ramp, temperature=0.0, top_k=1, top_p=0.1)) == [0, 1, 2, 3]


@pytest.mark.parametrize("top_p", [0.5, 0.9, 0.9999])
def test_a_nucleus_wider_than_the_guess(top_p: float) -> None:
    logits = torch.randn(3000, generator=torch.Generator().manual_seed(5)) * 0.3
    wide = one(logits, top_p=top_p)
    assert len(kept(wide)) > 256
    share = logits.double().softmax(0)
    mass = float(share[wide.isfinite()].sum())
    least = float(share[wide.isfinite()].min())
    assert mass - least < top_p + 1e-5
    assert mass > top_p - 1e-5
    # Its company (a narrow nucleus, no nucleus) changes nothing, bit for bit.
    params = [SamplingParams(temperature=1.0, top_p=p) for p in (top_p, 0.01, 1.0)]
    rows = [Row(sequence(p, [0], 1)) for p in params]
    assert torch.equal(processed_logits(logits.repeat(3, 1), rows)[0], wide)


def at_a_boundary(logits: Tensor, places: list[int]) -> list[Row]:
    """Rows whose top_p is the mass of their first tokens: the least rounding moves the cut."""
    mass = logits.double().softmax(1).sort(1, descending=True).values.cumsum(1)
    masses = (float(mass[row, place]) for row, place in enumerate(places))
    params = (SamplingParams(temperature=1.0, top_p=min(each, 1.0)) for each in masses)
    return [Row(sequence(each, [0], 1)) for each in params]


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_cut_of_a_row_does_not_depend_on_the_others(
    threads: int, set_threads: Callable[[int], None]
) -> None:
    """Threads share the sum of one long row, and not those of several."""
    set_threads(threads)
    logits = torch.randn(24, 49152, generator=torch.Generator().manual_seed(6)) * 6
    rows = at_a_boundary(logits, [1 + 3 * row for row in range(24)])
    together = processed_logits(logits.clone(), rows)
    for index, row in enumerate(rows):
        alone = processed_logits(logits[index : index + 1].clone(), [row])[0]
        assert torch.equal(alone, together[index]), index


@given(
    st.integers(0, 2**32), st.integers(2, 9), st.sampled_from([3, 97, 1000, 4099]), st.floats(0, 8)
)
@settings(max_examples=60, deadline=None)
def test_nor_on_their_number_nor_on_its_place(
    seed: int, count: int, size: int, spread: float
) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(count, size, generator=generator) * spread
    rows = at_a_boundary(logits, torch.randint(size, (count,), generator=generator).tolist())
    together = processed_logits(logits.clone(), rows)
    order = torch.randperm(count, generator=generator).tolist()
    moved = processed_logits(logits[order], [rows[index] for index in order])
    part = processed_logits(logits[1:].clone(), rows[1:])
    assert torch.equal(moved, together[order])
    assert torch.equal(part, together[1:])
    for index, row in enumerate(rows):
        alone = processed_logits(logits[index : index + 1].clone(), [row])[0]
        assert torch.equal(alone, together[index])


def test_hardly_any_temperature_is_greedy() -> None:
    for temperature in (1e-8, 1e-40, 5e-324):
        processed = one([0.0, -1.0, 2.0, 1.0], temperature=temperature, top_p=0.9)
        assert not processed.isnan().any()
        assert kept(processed) == [2]


def test_tokens_the_logits_do_not_have_are_passed_over() -> None:
    """A draft's vocabulary may be padded less than its target's."""
    params = SamplingParams(
        temperature=1.0, repetition_penalty=2.0, logit_bias={6: 1.0, 1: 1.0}, min_tokens=5
    )
    row = Row(sequence(params, [7, 2, 9], 1, stop=8), (5,))
    assert processed_logits(torch.ones(1, 4), [row])[0].tolist() == [1.0, 2.0, 0.5, 1.0]
