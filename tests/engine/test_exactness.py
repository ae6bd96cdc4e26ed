"""The heart: with any proposer, any k, in any company, the text is the one without speculation.

Tiny random models have little to repeat, so prompts repeat themselves and a bias keeps the
text among few tokens: n-grams and suffixes then match often. Every comparison asserts that
drafts were proposed, some taken and some refused: it cannot pass by doing nothing.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from outdraft import Engine, SamplingParams, Speculation, load_engine
from outdraft.engine.draft_lengths import EVERYBODY, NO_LIMITS, Limits
from outdraft.engine.models import linear
from outdraft.engine.sequence import FinishReason
from outdraft.speculation import OFF
from outdraft.testing.tiny_heads import tiny_head
from outdraft.testing.tiny_models import FAMILIES, tiny_model

Written = tuple[list[int], str, FinishReason | None]

METHODS = ("ngram", "suffix", "draft_model", "eagle")
RATES = {"draft_model": (0.2, 0.8), "eagle": (0.03, 0.7)}  # a tiny head is right at times
NUM_PROMPTS, MAX_TOKENS = 24, 40
BATCHES = (1, 3, 16, 4)  # sequences at once; together NUM_PROMPTS
STOPS = ("GH", "MJ", "KF", "LL", "FI")  # tokens 40 … 47 are the letters F … M
FEW = dict.fromkeys(range(40, 48), 9.0)  # a text among eight tokens repeats itself

PARAMS = (
    SamplingParams(),
    SamplingParams(temperature=0.7, seed=11),
    SamplingParams(temperature=1.0, seed=12),
    SamplingParams(temperature=0.7, seed=13, top_p=0.9),
    SamplingParams(
        temperature=1.0, seed=14, repetition_penalty=1.2, presence_penalty=0.3,
        frequency_penalty=0.2, min_p=0.02, top_p=0.95, top_k=30, min_tokens=5,
    ),
    SamplingParams(repetition_penalty=1.05, frequency_penalty=0.1),
)  # fmt: skip


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("exactness")


def prompts(seed: int = 0) -> list[list[int]]:
    """From a few tokens to more than a block, each with something in it three times."""
    draw = Random(seed)
    made = []
    for index in range(NUM_PROMPTS):
        phrase = [draw.randrange(40, 48) for _ in range(2 + index % 7)]
        filler = [draw.randrange(3, 384) for _ in range(index * 4)]
        made.append([*phrase, *filler, *phrase, *phrase])
    return made


def wanted() -> list[SamplingParams]:
    """Every prompt its own mixture of the parameters; a third may end at a stop string."""
    return [
        replace(
            PARAMS[index % len(PARAMS)],
            logit_bias=FEW,
            stop=STOPS if index % 4 in (0, 3) else (),
            max_tokens=MAX_TOKENS - index % 5,
        )
        for index in range(NUM_PROMPTS)
    ]


def written(engine: Engine, k: int | None = None) -> list[Written]:
    """Tokens, text and end of every prompt, in batches of changing size."""
    found: list[Written] = []
    todo = list(zip(prompts(), wanted(), strict=True))
    for size in itertools.cycle(BATCHES):
        some, todo = todo[:size], todo[size:]
        generations = engine.generate([prompt for prompt, _ in some], [p for _, p in some], k=k)
        found += [(g.tokens, g.text, g.finish_reason) for g in generations]
        if not todo:
            break
    engine.pool.check([])
    return found


def check(engine: Engine, expected: list[Written], ks: list[int | None]) -> None:
    """The engine's texts equal the expected ones for each k; and it did speculate."""
    for k in ks:
        pairs = enumerate(zip(written(engine, k), expected, strict=True))
        assert [index for index, (mine, theirs) in pairs if mine != theirs] == [], f"k = {k}"
    seen = engine.acceptance
    low, high = RATES.get(engine.speculation.method, (0.02, 0.98))
    assert seen.num_draft_tokens > 150
    assert seen.rate is not None
    assert low < seen.rate < high
    assert len(seen.drafted_per_position) <= max(k or engine.speculation.k for k in ks)


class Pair:
    """A target, a draft that agrees with it often, and the target's own texts."""

    def __init__(self, root: Path, family: str, **options: Any) -> None:
        self.family = family
        self.target = str(tiny_model(root / family, family))
        self.drafts = {
            "draft_model": str(tiny_model(root / f"{family}-draft", family, perturb=0.07)),
            "eagle": str(tiny_head(root / f"{family}-head", Path(self.target))),
        }
        self._options = options
        self.expected = written(self.engine(OFF))
        assert sum(end is FinishReason.STOP for _, _, end in self.expected) >= 1

    def engine(self, speculation: Speculation, **options: Any) -> Engine:
        options = {"kv_cache_bytes": 8 << 20, **self._options, **options}
        return load_engine(self.target, speculation, **options)

    def speculation(self, method: str, **settings: Any) -> Speculation:
        settings = {"k": 8, "prompt_lookup_min": 1, **settings}
        return Speculation(method=method, draft=self.drafts.get(method), **settings)


@pytest.fixture(scope="module", params=FAMILIES)
def pair(request: pytest.FixtureRequest, root: Path) -> Pair:
    return Pair(root, request.param)


@pytest.mark.parametrize("is_first", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("method", METHODS)
def test_the_text_is_the_same(pair: Pair, method: str, is_first: bool) -> None:
    # Over the families every k = 1 … 8 with every method; the eighth, 5 or 7, comes below.
    k = 1 + (FAMILIES.index(pair.family) + (5, 7)[METHODS.index(method) % 2]) % 8
    check(pair.engine(pair.speculation(method)), pair.expected, [k if is_first else 9 - k])


@pytest.fixture(
    scope="module",
    params=[("bfloat16", "none"), ("bfloat16", "int8"), ("bfloat16", "int4"), ("float32", "int8")],
    ids="-".join,
)
def small(request: pytest.FixtureRequest, root: Path) -> Pair:
    dtype, quantization = request.param
    return Pair(root, "llama", dtype=dtype, quantization=quantization)


@pytest.mark.parametrize("method", METHODS)
def test_also_with_smaller_weights(small: Pair, method: str) -> None:
    """Rounding is coarser there, and still each row's own: the texts are equal, not alike."""
    # The draft has the target's precision but not its weights' packing: agreement is less.
    check(small.engine(small.speculation(method)), small.expected, [5])


def test_also_where_no_product_can_be_packed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a CPU without bfloat16: torch's own product, with rows that it does not mind."""
    monkeypatch.setattr(linear, "can_prepack", lambda dtype: False)
    small = Pair(root, "llama", dtype="bfloat16")
    check(small.engine(small.speculation("ngram")), small.expected, [5])


@pytest.fixture(scope="module")
def llama(root: Path) -> Pair:
    return Pair(root, "llama")


@pytest.mark.parametrize("method", METHODS)
def test_a_schedule_switches_in_the_middle_of_a_text(llama: Pair, method: str) -> None:
    """k falls to nothing as sequences come and rises as they go."""
    schedule = ((1, 1, 8), (2, 3, 3), (4, 8, 1), (9, 16, 0))
    check(llama.engine(llama.speculation(method, schedule=schedule)), llama.expected, [None])


@pytest.mark.parametrize("method", METHODS)
def test_a_crowded_cache_and_small_steps(llama: Pair, method: str) -> None:
    """Drafts cut by the step's budget, sequences sent back and resumed: nobody can tell."""
    engine = llama.engine(
        llama.speculation(method), kv_cache_bytes=9 * 32768, max_num_batched_tokens=40
    )
    check(engine, llama.expected, [7])


@pytest.mark.parametrize("method", METHODS)
def test_steps_without_drafts_in_between(llama: Pair, method: str) -> None:
    """As in a canary's slices, and with limits that come and go: drafts are right again after, and
    in slices in which limits are lifted."""
    engine = llama.engine(llama.speculation(method))
    num_lifted = 0
    for prompt, params in zip(prompts(), wanted(), strict=True):
        engine.add_request(prompt, params)
    lives = list(engine._live.values())
    for number in itertools.count():
        if not engine.has_work:
            break
        is_limited, inverted = number % 11 >= 9, number % 7 >= 3
        engine.limits = Limits(((1, 3, 2), (4, 99, 0))) if is_limited else NO_LIMITS
        stats = engine.step(inverted=EVERYBODY if inverted else None).stats
        assert stats is not None
        num_lifted += inverted and stats.is_stopped
        lengths = (0, 2) if is_limited and not (inverted and stats.is_stopped) else (0, 8)
        assert stats.max_k in lengths
        if inverted != stats.is_stopped:
            assert (stats.max_k, sum(stats.draft_lengths)) == (0, 0)
    assert num_lifted
    found = [(x.generation.tokens, x.generation.text, x.generation.finish_reason) for x in lives]
    assert found == llama.expected
    low, _ = RATES.get(method, (0.02, 0.98))
    assert engine.acceptance.num_draft_tokens > 100
    assert (engine.acceptance.rate or 0) > low


@pytest.mark.parametrize("method", ["draft_model", "eagle"])
def test_a_switch_by_hand_at_every_round(llama: Pair, method: str) -> None:
    """`k` is read each round: off, on, longer, off again."""
    engine = llama.engine(llama.speculation(method))
    generations = []
    for prompt, params in zip(prompts(), wanted(), strict=True):
        engine.add_request(prompt, params)
        generations.append(next(reversed(engine._live.values())))
    rounds = 0
    while engine.has_work:
        for live in engine._live.values():
            live.sequence.max_draft_tokens = (0, 3, 8, 1, 0, 0, 5)[(rounds + live.sequence.id) % 7]
        engine.step()
        rounds += 1
    got = [
        (x.generation.tokens, x.generation.text, x.generation.finish_reason) for x in generations
    ]
    assert got == llama.expected
    assert engine.acceptance.num_draft_tokens > 200
