"""Slices without drafts: how long they are, how many, and that no text notices them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outdraft import Engine, Speculation, load_engine
from outdraft.engine.outputs import StepStats, Update
from outdraft.engine.sequence import FinishReason
from outdraft.server.canary import Canary, draws
from outdraft.testing.tiny_heads import tiny_head
from outdraft.testing.tiny_models import tiny_model
from tests.server.serving import serving
from tests.server.wire import FEW, Metrics, Wire

DECODING = StepStats(1, 5, 0, [4], 2, 2, 4, 0.1)
WITHOUT_DRAFTS = replace(DECODING, num_tokens=1, draft_lengths=[0], max_k=0)
WITH_A_PROMPT = replace(DECODING, num_sequences=2, num_tokens=20, num_prompt_tokens=15)


def update(request_id: str = "a", end: FinishReason | None = None) -> Update:
    return Update(request_id, 0, [1], 0, "", None, end, None)


def in_a_slice(**options: Any) -> Canary:
    """A canary whose slice has just begun."""
    canary = Canary(0.5, chance=1.0, **options)
    while not canary.in_slice:
        canary.observe(DECODING, [update()])
    return canary


def test_it_is_off_without_a_share() -> None:
    canary = Canary(0.0, chance=1.0)
    for _ in range(1000):
        canary.observe(DECODING, [update()])
        assert not canary.in_slice


def throughput_kept(canary: Canary, speedup: float, catch_up: float, noise: float) -> float:
    """Tokens a second with the canary over those without. A step with drafts takes 0.1 s on average
    and writes 1000 tokens, one without writes fewer; the first one after a slice takes `catch_up`
    times as long, for drafts that have to read what was written meanwhile."""
    draw = Random(1)
    with_drafts = replace(DECODING, num_decoded=1000)
    without = replace(WITHOUT_DRAFTS, num_decoded=round(1000 / speedup))
    written, spent, was_in = 0, 0.0, False
    for number in range(15_000):
        in_slice = canary.in_slice
        usual = 0.1 * (catch_up if was_in and not in_slice else 1.0)
        seconds = usual * draw.lognormvariate(-(noise**2) / 2, noise)
        stats = replace(without if in_slice else with_drafts, seconds=seconds)
        canary.observe(stats, [update(f"r{number // 50}")])
        # Noise is the machine's, not the canary's.
        written, spent, was_in = written + stats.num_decoded, spent + usual, in_slice
    return written / spent / 10_000


@pytest.mark.parametrize("noise", [0.0, 0.4])
@pytest.mark.parametrize("catch_up", [1.0, 3.0])
@pytest.mark.parametrize("speedup", [0.5, 1.0, 1.6, 2.5, 6.0])
def test_a_share_of_two_percent_costs_less_than_one(
    speedup: float, catch_up: float, noise: float
) -> None:
    """However much faster texts are with drafts, and whatever drafts have to do after a slice."""
    kept = throughput_kept(Canary(0.02, chance=1.0), speedup, catch_up, noise)
    assert kept > 0.9905
    if speedup > 1:
        assert kept < 0.995  # there are slices


@given(st.floats(0.001, 0.02), st.integers(0, 999))
def test_slices_stay_within_their_share(share: float, seed: int) -> None:
    """But for the last slice, whose steps may be slower than was expected of them."""
    canary, draw = Canary(share, chance=1.0), Random(seed)
    spent = inside = at_begin = last = 0.0
    for _ in range(1000):
        seconds, has_prompt = draw.expovariate(5), draw.random() < 0.1
        stats = WITHOUT_DRAFTS if canary.in_slice else DECODING
        stats = replace(WITH_A_PROMPT if has_prompt else stats, seconds=seconds)
        was_in = canary.in_slice
        canary.observe(stats, [update()])
        spent += seconds
        if was_in:
            inside, last = inside + seconds, seconds
        if canary.in_slice and not was_in:
            at_begin = inside
            assert inside <= share * spent
        assert inside <= max(share * spent, at_begin + 1.0 + last)


def test_slices_are_used_up_to_their_share() -> None:
    canary = Canary(0.02)
    inside = num_slices = 0
    for number in range(20_000):
        was_in = canary.in_slice
        canary.observe(WITHOUT_DRAFTS if was_in else DECODING, [update(f"r{number // 50}")])
        inside += was_in
        num_slices += canary.in_slice and not was_in
    assert 0.017 < inside / 20_000 <= 0.02
    assert num_slices > 80


def test_a_slice_is_a_few_steps() -> None:
    canary, count = in_a_slice(num_steps=6), 0
    while canary.in_slice:
        canary.observe(WITHOUT_DRAFTS, [update()])
        count += 1
    assert count == 6


@pytest.mark.parametrize(
    ("stats", "updates"),
    [
        (WITHOUT_DRAFTS, [update(end=FinishReason.STOP)]),
        (WITHOUT_DRAFTS, [update("b")]),  # the drawn one was aborted
        (WITH_A_PROMPT, [update()]),
        (replace(WITHOUT_DRAFTS, seconds=1.1), [update()]),
    ],
    ids=["its request ends", "its request is gone", "a prompt comes", "a slow step"],
)
def test_a_slice_ends_early(stats: StepStats, updates: list[Update]) -> None:
    canary = in_a_slice()
    canary.observe(stats, updates)
    assert not canary.in_slice


@pytest.mark.parametrize(
    ("stats", "updates"),
    [
        (WITHOUT_DRAFTS, [update()]),
        (WITH_A_PROMPT, [update()]),
        (DECODING, [update(end=FinishReason.LENGTH)]),
    ],
    ids=["nobody drafts", "a prompt is read", "the last token"],
)
def test_no_slice_begins(stats: StepStats, updates: list[Update]) -> None:
    canary = Canary(0.5, chance=1.0)
    for _ in range(50):
        canary.observe(stats, updates)
        assert not canary.in_slice


def test_where_drafts_are_turned_off_slices_begin_too() -> None:
    stopped = replace(WITHOUT_DRAFTS, is_stopped=True, stopped=(True,))
    canary = Canary(0.02)
    inside = 0
    for number in range(20_000):
        was_in = canary.in_slice
        tried = replace(DECODING, is_stopped=True)
        canary.observe(tried if was_in else stopped, [update(f"r{number // 50}")])
        inside += was_in
    assert 0.017 < inside / 20_000 <= 0.02


def test_a_renewed_canary_begins_anew() -> None:
    canary = in_a_slice(num_steps=6)
    again = canary.renewed()
    assert (again.share, again.in_slice) == (0.5, False)
    assert canary.renewed(0.01).share == 0.01
    again.observe(DECODING, [update()])
    assert not again.in_slice  # there is no room yet


def test_drawing_is_by_request_and_step() -> None:
    drawn = [draws(f"http-{number}", step) for number in range(100) for step in range(90)]
    for place in range(2):
        below = sum(each[place] < 1 / 32 for each in drawn)
        assert 0.025 < below / len(drawn) < 0.038
    assert 0.4 < sum(a < b for a, b in drawn) / len(drawn) < 0.6
    assert draws("a", 1) == draws("a", 1) != draws("a", 2)


def bands_of(temperatures: list[tuple[float, ...]], **more: Any) -> Counter[tuple[str, str]]:
    """(bands in the step, band of the slice that began there), over many steps."""
    canary, found = Canary(0.5, chance=1.0, num_steps=1), Counter[tuple[str, str]]()
    for number in range(30_000):
        here = temperatures[number % len(temperatures)]
        stats = replace(DECODING, temperatures=here, stopped=(False,) * len(here), **more)
        was_in = canary.in_slice
        canary.observe(stats, [update()])
        if canary.in_slice and not was_in:
            found[",".join(f"{each:g}" for each in here), canary.band] += 1
    return found


def test_every_third_slice_is_for_a_band_of_temperatures() -> None:
    """And a band that is there has the same chance whoever is beside it."""
    found = bands_of([(0.0,), (0.0, 1.5), (1.5,), (0.0, 0.8, 1.5), (0.8,)])
    steps = Counter[str]()
    for (here, _), count in found.items():
        steps[here] += count
    for here in steps:
        for temperature, band in (("0", "0"), ("0.8", "0.7-1"), ("1.5", "1+")):
            share = found[here, band] / steps[here]
            is_there = temperature in here.split(",")
            assert share == pytest.approx(1 / 9 if is_there else 0, abs=0.03)
        assert found[here, ""] / steps[here] > 0.6


def test_one_temperature_needs_no_slices_of_its_own() -> None:
    assert {band for _, band in bands_of([(0.8, 0.9)])} == {""}


def test_turned_off_altogether_slices_are_for_everybody() -> None:
    off = {"max_k": 0, "is_stopped": True}
    canary, bands = Canary(0.5, chance=1.0, num_steps=1), set()
    stats = replace(WITHOUT_DRAFTS, temperatures=(0.0, 1.5), stopped=(True, True), **off)
    for _ in range(1000):
        canary.observe(stats, [update()])
        bands.add(canary.band)
    assert bands == {""}


# ------------------------------------------------------------------ in a server

METHODS = ("ngram", "suffix", "draft_model", "eagle")
PROMPTS = [f" the draft and the {word} and the draft and the {word}" for word in "abcdefgh"]
ASKED: dict[str, Any] = {"max_tokens": 60, "logit_bias": FEW, "ignore_eos": True}
Made = tuple[Path, dict[str, str]]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Made:
    root = tmp_path_factory.mktemp("canary")
    target = tiny_model(root / "llama", "llama")
    drafts = {
        "draft_model": str(tiny_model(root / "draft", "llama", perturb=0.07)),
        "eagle": str(tiny_head(root / "head", target)),
    }
    return target, drafts


def made(models: Made, method: str) -> Engine:
    target, drafts = models
    speculation = Speculation(method, k=4, draft=drafts.get(method), prompt_lookup_min=1)
    return load_engine(str(target), speculation, kv_cache_bytes=8 << 20)


def answers(engine: Engine, **options: Any) -> Iterator[tuple[list[str], Metrics]]:
    """The texts of a server, asked one at a time and then all at once, and its scrapes."""
    with serving(engine, **options) as (url, _):
        wire = Wire(url)

        def text(number: int) -> str:
            asked = {**ASKED, "temperature": number % 3 / 2, "seed": number}
            return str(wire.complete(PROMPTS[number], **asked)["choices"][0]["text"])

        with wire.client, ThreadPoolExecutor(8) as pool:
            for at_once in (map, pool.map):
                yield list(at_once(text, range(len(PROMPTS)))), wire.metrics()


@pytest.fixture(scope="module")
def plain(models: Made) -> list[tuple[list[str], Metrics]]:
    return list(answers(made(models, "off")))


@pytest.mark.parametrize("method", METHODS)
def test_texts_are_the_same(
    models: Made, method: str, plain: list[tuple[list[str], Metrics]]
) -> None:
    canary = Canary(0.4, num_steps=3, chance=0.5)
    for (expected, _), (found, metrics) in zip(
        plain, answers(made(models, method), canary=canary), strict=True
    ):
        assert found == expected, "texts differ"
        sides = metrics.by("outdraft:decode_tokens_total", "side")
        assert sides.keys() >= {"plain", "speculating"}
        # After slices drafts are accepted as before: a third of the steps is in them.
        rounds = metrics.by("outdraft:rounds_total", "k")
        assert rounds["0"] > 20
        assert metrics.value("vllm:spec_decode_num_accepted_tokens_total") > 20
    bands = metrics.by("outdraft:decode_tokens_by_temperature_total", "temperature")
    assert bands.keys() == {"0", "0.3-0.7", "0.7-1"}
    sides = metrics.by("outdraft:decode_tokens_by_temperature_total", "side")
    assert sides.keys() == {"plain", "speculating"}


def test_a_server_without_speculation_is_plain(plain: list[tuple[list[str], Metrics]]) -> None:
    metrics = plain[0][1]
    tokens = metrics.by("outdraft:decode_tokens_total", "running")
    assert metrics.by("outdraft:decode_tokens_total", "side").keys() == {"plain"}
    # All but the first tokens of the texts, and the very first step.
    assert tokens == {"1": 8 * 59 - 1}
    assert 0 < metrics.value("outdraft:decode_seconds_total") < 60
    both = plain[1][1]
    # Whether a prompt was read while others wrote depends on when they came.
    assert both.by("outdraft:decode_tokens_total", "side").keys() - {"mixed"} == {"plain"}
    assert {"1", "5-8"} <= both.by("outdraft:decode_tokens_total", "running").keys()


def test_without_a_canary_everything_speculates(models: Made) -> None:
    for _, metrics in answers(made(models, "ngram")):
        sides = metrics.by("outdraft:decode_tokens_total", "side").keys()
        assert sides - {"mixed"} == {"speculating"}
