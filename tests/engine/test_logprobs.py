"""Logprobs of a prompt and of a text are the target's, in whatever pieces and company."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from outdraft import Engine, Generation, SamplingParams, Speculation, load_engine
from outdraft.engine.loading import BLOCK_SIZE
from outdraft.engine.logprobs import token_logprobs
from outdraft.engine.outputs import TokenLogprob
from outdraft.errors import OptionError
from outdraft.speculation import OFF
from outdraft.testing.tiny_models import tiny_model
from tests.engine.models.test_decoder import reference_logits, some_tokens

Make = Callable[..., Engine]
Scores = list[TokenLogprob | None]
PROMPT = some_tokens(384, 150)
REPEATING = [*PROMPT[:7]] * 6  # n-grams match here
NGRAM = Speculation(method="ngram", k=4)
TOKEN_BYTES = 2 * 2 * 2 * 16 * 4  # keys and values, layers, kv heads, head size, float32


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("logprobs"), "llama")


@pytest.fixture(scope="module")
def make(folder: Path) -> Make:
    def made(speculation: Speculation = OFF, **options: object) -> Engine:
        options.setdefault("kv_cache_bytes", 4 << 20)
        return load_engine(str(folder), speculation, **options)  # type: ignore[arg-type]

    return made


@pytest.fixture(scope="module")
def table(folder: Path) -> Tensor:
    """(150, 384): what transformers says comes behind each token of PROMPT."""
    return reference_logits(folder, PROMPT).log_softmax(1)


def params(**options: object) -> SamplingParams:
    return SamplingParams(**{"max_tokens": 12, "ignore_eos": True, **options})  # type: ignore[arg-type]


def scored(engine: Engine, prompt: list[int], **options: object) -> Generation:
    [generation] = engine.generate([prompt], params(**{"prompt_logprobs": 2, **options}))
    engine.pool.check([])
    assert generation.prompt_logprobs is not None
    assert len(generation.prompt_logprobs) == len(prompt)
    return generation


@pytest.fixture(scope="module")
def expected(make: Make) -> Scores:
    scores = scored(make(), PROMPT).prompt_logprobs
    assert scores is not None
    return scores


# ------------------------------------------------------------------ the prompt's


def test_a_prompt_is_scored_as_transformers_would(expected: Scores, table: Tensor) -> None:
    nothing, *scores = expected
    assert nothing is None  # no token comes before the first
    assert len(scores) == len(PROMPT) - 1
    best = table.topk(2)
    for row, (token, score) in enumerate(zip(PROMPT[1:], scores, strict=True)):
        assert score is not None
        assert score.token == token
        assert score.logprob == pytest.approx(float(table[row, token]), abs=1e-4)
        assert [each for each, _ in score.top] == best.indices[row].tolist()
        values = [value for _, value in score.top]
        assert values == pytest.approx(best.values[row].tolist(), abs=1e-4)


@pytest.mark.parametrize("budget", [1, 7, 64])
@pytest.mark.parametrize("speculation", [OFF, NGRAM], ids=["off", "ngram"])
def test_in_chunks_it_gets_the_same_scores(
    make: Make, expected: Scores, speculation: Speculation, budget: int
) -> None:
    engine = make(speculation, max_num_batched_tokens=budget)
    assert scored(engine, PROMPT).prompt_logprobs == expected


def test_scores_are_under_the_raw_logits(make: Make, expected: Scores) -> None:
    wild = scored(
        make(), PROMPT, temperature=1.5, seed=3, top_k=4, repetition_penalty=2.0,
        logit_bias={9: 50.0},
    )  # fmt: skip
    assert wild.prompt_logprobs == expected


def test_how_many_alternatives(make: Make, expected: Scores) -> None:
    alone = scored(make(), PROMPT, prompt_logprobs=0).prompt_logprobs
    assert alone is not None
    assert [s and (s.token, s.logprob, s.top) for s in alone] == [
        s and (s.token, s.logprob, ()) for s in expected
    ]
    with pytest.raises(OptionError, match="prompt_logprobs must be at least 0 and at most 20"):
        params(prompt_logprobs=21)


def test_a_single_token_has_no_score(make: Make) -> None:
    assert scored(make(), PROMPT[:1]).prompt_logprobs == [None]


@pytest.mark.parametrize("budget", [16, 512])
@pytest.mark.parametrize("speculation", [OFF, NGRAM], ids=["off", "ngram"])
def test_everybody_in_a_batch_gets_their_own(
    make: Make, expected: Scores, speculation: Speculation, budget: int
) -> None:
    prompts = [PROMPT[:90], REPEATING, PROMPT, REPEATING[:20], PROMPT[:1], PROMPT[:40]]
    tops = [2, None, 2, 0, 2, None]
    wanted = [params(prompt_logprobs=top, max_tokens=20) for top in tops]
    plain = make().generate(prompts, params(max_tokens=20))
    engine = make(speculation, max_num_batched_tokens=budget)
    for _ in range(2):  # the second time the cache knows every prompt
        got = engine.generate(prompts, wanted)
        assert [each.tokens for each in got] == [each.tokens for each in plain]
        assert [each.prompt_logprobs is None for each in got] == [top is None for top in tops]
        assert got[0].prompt_logprobs == expected[:90]
        assert got[2].prompt_logprobs == expected
        assert (
            got[3].prompt_logprobs == scored(make(), prompts[3], prompt_logprobs=0).prompt_logprobs
        )
        assert got[4].prompt_logprobs == [None]
    assert bool(engine.acceptance.num_accepted_tokens) == (speculation is NGRAM)


def test_a_known_prompt_is_scored_all_the_same(make: Make, expected: Scores) -> None:
    engine = make()
    first, again = scored(engine, PROMPT), scored(engine, PROMPT)
    assert first.prompt_logprobs == again.prompt_logprobs == expected
    assert again.num_cached_tokens == 0
    [plain] = engine.generate([PROMPT], params())  # but who wants no scores shares its blocks
    assert plain.num_cached_tokens == 149 // BLOCK_SIZE * BLOCK_SIZE
    assert first.tokens == again.tokens == plain.tokens
    # Nothing was looked for on behalf of the first two.
    assert engine.scheduler.prefix_hits == (plain.num_cached_tokens, len(PROMPT))


@pytest.mark.parametrize("speculation", [OFF, NGRAM], ids=["off", "ngram"])
def test_a_prompt_sent_back_half_scored(
    make: Make, expected: Scores, speculation: Speculation
) -> None:
    """Rows computed a second time are not recorded a second time."""
    engine = make(
        speculation, kv_cache_bytes=14 * BLOCK_SIZE * TOKEN_BYTES, max_num_batched_tokens=6
    )
    wanted = [params(max_tokens=100), params(max_tokens=1, prompt_logprobs=2)]
    writing, sent_back = engine.generate([REPEATING, PROMPT], wanted)
    assert (
        sent_back.num_preemptions == engine.scheduler.num_preemptions > 0
    )  # before its only token
    assert sent_back.prompt_logprobs == expected
    [alone] = make().generate([PROMPT], params(max_tokens=1))
    assert sent_back.tokens == alone.tokens
    assert len(writing.tokens) == 100


def test_every_choice_has_the_scores(make: Make, expected: Scores) -> None:
    choices = make().generate([PROMPT], params(prompt_logprobs=2, n=2, temperature=1.0))
    assert [each.prompt_logprobs for each in choices] == [expected, expected]


# ------------------------------------------------------------------ the text's


@pytest.mark.parametrize("speculation", [OFF, NGRAM], ids=["off", "ngram"])
def test_a_texts_logprobs_are_the_same_in_company(make: Make, speculation: Speculation) -> None:
    """Each one's rows are found among those of prompts, rounds and texts that just ended."""
    prompts = [REPEATING, PROMPT[:30], REPEATING[3:], PROMPT[5:9]]
    wanted = [
        params(logprobs=2, max_tokens=10 + 7 * index, prompt_logprobs=0 if index == 1 else None)
        for index in range(4)
    ]
    alone = [
        make().generate([prompt], one)[0].logprobs
        for prompt, one in zip(prompts, wanted, strict=True)
    ]
    got = make(speculation).generate(prompts, wanted)
    assert [each.logprobs for each in got] == alone


def test_tokens_cut_off_are_no_alternatives() -> None:
    logits = torch.tensor([[0.0, float("-inf"), 0.0, float("-inf")]])
    [score] = token_logprobs(logits, [2], num_top=4)
    half = pytest.approx(-0.6931472)
    assert (score.token, score.logprob) == (2, half)
    assert sorted(score.top) == [(0, half), (2, half)]
