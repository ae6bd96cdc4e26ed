"""Compiled draws are those of exact scores, whatever the build, the company and the size."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from outdraft.engine import sampling
from outdraft.engine.native import computer as native_computer
from outdraft.engine.native import draws as native_draws
from outdraft.engine.native import library as native
from outdraft.engine.native.draws import can_draw, draw_rows, draw_surely
from outdraft.engine.sampling import (
    Row,
    Stream,
    draw,
    gumbel_noise,
    noise_key,
    row_noise,
    uniforms,
)
from outdraft.engine.sequence import SamplingParams, Sequence

pytestmark = pytest.mark.skipif(native.library() is None, reason="the library is not compiled here")

CPU = torch.device("cpu")
VOCABULARY = 49152


def keys_of(count: int, seed: int = 0) -> list[int]:
    return [noise_key(seed, position, Stream.TOKEN) for position in range(count)]


def reference(logits: Tensor, keys: list[int], ids: Tensor | None = None) -> list[int]:
    """Every score in double precision, by the C library's logarithms as Python calls them."""
    numbers = uniforms(keys, logits.shape[1], CPU, ids).double().numpy()
    noise = [[-math.log(-math.log1p(-each)) for each in row] for row in numbers.tolist()]
    columns: list[int] = (logits.double().numpy() + np.array(noise)).argmax(1).tolist()
    return columns


def drawn(logits: Tensor, keys: list[int], ids: Tensor | None = None) -> list[int]:
    return draw_rows(logits, range(len(keys)), keys, ids)


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def some_ids(size: int, seed: int = 0) -> Tensor:
    ids = torch.randperm(VOCABULARY, generator=torch.Generator().manual_seed(seed))
    return ids[:size].int()


class EveryBuild:
    """Computes with each library that this CPU runs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self._levels = native._levels()
        self._load = native.library.__wrapped__

    def __iter__(self) -> Iterator[Any]:
        for level in self._levels:
            self._monkeypatch.setattr(native, "_levels", lambda level=level: (level,))
            lib = self._load()
            assert lib._name.endswith(f"step-{level}.so")
            self._monkeypatch.setattr(native_computer, "library", lambda lib=lib: lib)
            self._monkeypatch.setattr(native_draws, "computer", native_computer.Computer())
            yield lib


@pytest.fixture
def every_build(monkeypatch: pytest.MonkeyPatch) -> EveryBuild:
    return EveryBuild(monkeypatch)


def test_the_numbers_are_torchs_bit_for_bit(every_build: EveryBuild) -> None:
    keys = [*keys_of(20), 0, 1, 2**32 - 1, 2**32, 2**63, 2**64 - 1]
    expected = uniforms(keys, 40_001, CPU)
    for lib in every_build:
        for key, row in zip(keys, expected, strict=True):
            mine = torch.zeros(40_002)
            lib.uniform_row(key, 40_001, mine.data_ptr())
            assert torch.equal(mine[:-1], row)
            assert mine[-1] == 0


def test_torch_has_the_noise_of_ids() -> None:
    keys, ids = keys_of(3), some_ids(500)
    whole = gumbel_noise(keys, VOCABULARY, CPU)
    assert torch.equal(gumbel_noise(keys, 500, CPU, ids), whole[:, ids.long()])


@pytest.mark.parametrize("scale", [0.0, 0.01, 1.0, 5.0, 30.0, 1e4, 1e8, 1e30])
@pytest.mark.parametrize("size", [1, 15, 16, 255, 257, 5003])
def test_tokens_are_those_of_exact_scores(size: int, scale: float, every_build: EveryBuild) -> None:
    count = 400 if size < 300 else 20
    logits, keys, ids = randn(count, size) * scale, keys_of(count, seed=size), some_ids(size)
    expected, of_ids = reference(logits, keys), reference(logits, keys, ids)
    for _ in every_build:
        assert drawn(logits, keys) == expected
        assert drawn(logits, keys, ids) == of_ids


@pytest.mark.parametrize("size", [VOCABULARY, 70_001, 152_064])
def test_whole_vocabularies(size: int, every_build: EveryBuild) -> None:
    """Flat, like a model's, and ascending: the best token has the worst place."""
    keys = keys_of(3, seed=size)
    logits = torch.stack([torch.zeros(size), randn(size) * 4 - 10, torch.arange(size) * 1e-3])
    expected = reference(logits, keys)
    for _ in every_build:
        assert drawn(logits, keys) == expected


logit = st.one_of(
    st.floats(-40, 40, width=32),
    st.sampled_from([0.0, 1.0, -math.inf, -math.inf, 3e38, -3e38, 1e-40]),
)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(logit, min_size=1, max_size=70),
    st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=5),
    st.integers(1, 40),
    st.randoms(use_true_random=False),
)
def test_any_row(few: list[float], keys: list[int], copies: int, random: Any) -> None:
    """Equal logits, very large ones, ruled-out ones, any size; a row alone and among others."""
    logits = torch.tensor(few).repeat(copies).expand(len(keys), -1)
    ids = torch.tensor(random.sample(range(2**31 - 1), logits.shape[1]), dtype=torch.int32)
    for which in (None, ids):
        together = drawn(logits, keys, which)
        assert together == reference(logits, keys, which)
        assert together == [drawn(logits, [key], which)[0] for key in keys]


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_row_does_not_depend_on_the_others(
    threads: int, set_threads: Callable[[int], None]
) -> None:
    set_threads(threads)
    logits, keys = randn(40, 20_011) * 3, keys_of(40)  # enough for threads to share them
    together = drawn(logits, keys)
    assert together == [draw_rows(logits, [row], [key])[0] for row, key in enumerate(keys)]
    order = torch.randperm(40, generator=torch.Generator().manual_seed(1)).tolist()
    moved = draw_rows(logits, order, [keys[row] for row in order])
    assert moved == [together[row] for row in order]
    wide = torch.nn.functional.pad(logits, (5, 7), value=100.0)[:, 5:-7]  # rows further apart
    assert drawn(wide, keys) == together


def test_what_is_ruled_out_is_not_drawn(every_build: EveryBuild) -> None:
    keys = keys_of(200)
    logits = torch.full((200, 1000), -math.inf)
    for _ in every_build:
        assert drawn(logits, keys) == [0] * 200  # as argmax has it
    for row in range(200):
        logits[row, 5 * row] = -1e30
    for _ in every_build:
        assert drawn(logits, keys) == [5 * row for row in range(200)]
    logits[:, 3] = math.nan  # never, and it hides no other
    logits[7:9, 600:602] = math.inf
    for _ in every_build:
        columns = drawn(logits, keys)
        assert columns[7:9] == [600, 600]
        assert columns[20:] == [5 * row for row in range(20, 200)]


@pytest.mark.parametrize(("size", "scale"), [(8, 1.5), (50, 0.5), (300, 2.0)])
def test_draws_follow_the_distribution(size: int, scale: float) -> None:
    logits, count = randn(size, seed=1) * scale, 1 << 17
    logits[::7] = -math.inf
    share = logits.double().softmax(0).numpy()
    columns = drawn(logits.expand(count, -1), keys_of(count, seed=11))
    seen = np.bincount(columns, minlength=size)
    assert seen[share == 0].sum() == 0
    kept = share * count > 5
    expected = np.append(share[kept], share[~kept].sum()) * count
    seen = np.append(seen[kept], seen[~kept].sum())
    assert stats.chisquare(seen[expected > 0], expected[expected > 0]).pvalue > 1e-4


def test_where_torch_draws() -> None:
    logits = torch.zeros(2, 8)
    assert can_draw(logits)
    assert can_draw(logits[:, 2:])
    assert not can_draw(logits.double())
    assert not can_draw(torch.zeros(8, 2).T)
    assert not can_draw(torch.zeros(2, 8, device="meta"))


def rows_of(temperatures: list[float]) -> list[Row]:
    params = [SamplingParams(temperature=each) for each in temperatures]
    return [
        Row(Sequence(0, "r", 0, [1] * (i + 2), 1, each, i, frozenset()), (4,) * (i % 3))
        for i, each in enumerate(params)
    ]


@pytest.mark.parametrize("stream", [Stream.TOKEN, Stream.DRAFT])
def test_torch_draws_the_same_but_for_near_ties(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hot and cold rows side by side, with and without ids."""
    logits, ids = randn(60, 8192) * 4, some_ids(8192)
    rows = rows_of([float(index % 3) for index in range(60)])
    for which in (None, ids):
        mine = draw(logits, rows, stream, which)
        noise = row_noise(rows, 8192, CPU, stream, which)
        assert noise is not None
        scores = logits + noise
        with monkeypatch.context() as patch:
            patch.setattr("outdraft.engine.sampling.can_draw", lambda processed: False)
            other = draw(logits, rows, stream, which)
        assert mine.dtype == other.dtype
        best = scores.gather(1, torch.stack([mine, other], 1))
        assert (best[:, 0] - best[:, 1]).abs().max() < 1e-5
        assert (mine == other).sum() >= 59
        assert torch.equal(mine[::3], logits[::3].argmax(1))


def exact_scores(logits: Tensor, keys: list[int | None], ids: Tensor | None = None) -> Any:
    scores = logits.double().numpy().copy()
    for row, key in enumerate(keys):
        if key is not None:
            numbers = uniforms([key], logits.shape[1], CPU, ids).double().numpy()[0]
            scores[row] += [-math.log(-math.log1p(-each)) for each in numbers.tolist()]
    return scores


@pytest.mark.parametrize("scale", [0.0, 0.3, 5.0, 1e4])
@pytest.mark.parametrize("size", [1, 2, 17, 257, 5003])
def test_how_sure_is_the_distance_to_the_second(
    size: int, scale: float, every_build: EveryBuild
) -> None:
    """Hot and cold rows side by side; the token is that of a draw."""
    count = 60 if size < 300 else 10
    logits = randn(count, size, seed=size) * scale
    keys = [key if row % 3 else None for row, key in enumerate(keys_of(count, seed=size))]
    hot = [row for row in range(count) if row % 3]
    for ids in (None, some_ids(size)):
        scores = exact_scores(logits, keys, ids)
        first, second = np.sort(scores, 1)[:, -1], np.sort(scores, 1)[:, -min(2, size)]
        wanted = first - second if size > 1 else np.full(count, math.inf)
        for _ in every_build:
            columns, margins = draw_surely(logits, keys, ids)
            assert columns == scores.argmax(1).tolist()
            assert margins == pytest.approx(wanted.tolist(), rel=1e-5, abs=1e-6)
            own = draw_rows(logits, hot, [keys[row] or 0 for row in hot], ids)
            assert [columns[row] for row in hot] == own


def test_nothing_is_sure_of_equals_and_of_what_is_ruled_out(every_build: EveryBuild) -> None:
    logits = torch.full((4, 500), -math.inf)
    logits[1, [3, 400]] = 2.5
    logits[2, 7] = 1.0
    logits[3] = math.inf
    for _ in every_build:
        columns, margins = draw_surely(logits, [None] * 4)
        assert columns == [0, 3, 7, 0]
        assert margins == [0.0, 0.0, math.inf, 0.0]
        columns, margins = draw_surely(logits[[0, 2]], [5, 6])
        assert (columns, margins) == ([0, 7], [0.0, math.inf])


@pytest.mark.parametrize("is_compiled", [True, False])
def test_margins_of_rows_with_and_without_noise(
    is_compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By torch the same but for near-ties."""
    logits, rows = randn(12, 1000) * 3, rows_of([float(index % 2) for index in range(12)])
    exact = exact_scores(logits, [None if i % 2 == 0 else k for i, k in enumerate(keys_for(rows))])
    if not is_compiled:
        monkeypatch.setattr("outdraft.engine.sampling.can_draw", lambda processed: False)
    drawn = sampling.draw_surely(logits, rows)
    assert drawn.columns.tolist() == exact.argmax(1).tolist()
    assert drawn.margins is not None
    assert drawn.margins == pytest.approx(
        (np.sort(exact, 1)[:, -1] - np.sort(exact, 1)[:, -2]).tolist(), abs=1e-4
    )


def keys_for(rows: list[Row]) -> list[int]:
    return [noise_key(row.sequence.seed, row.position, Stream.TOKEN) for row in rows]
