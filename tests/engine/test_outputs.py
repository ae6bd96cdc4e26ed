"""What the engine tells of itself: the last update's generation, its clock, each step's counts."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise

import pytest

from outdraft import Engine, Generation, SamplingParams, Speculation, load_engine
from outdraft.engine.loading import BLOCK_SIZE
from outdraft.engine.outputs import StepResult, StepStats, Update
from outdraft.engine.sequence import FinishReason
from outdraft.speculation import OFF
from outdraft.testing.tiny_models import tiny_model

Make = Callable[..., Engine]
NGRAM = Speculation(method="ngram", k=4)
TOKEN_BYTES = 2 * 2 * 2 * 16 * 4  # keys and values, layers, kv heads, head size, float32
PROMPTS = [[40, 41, 42] * 9, list(range(3, 90)), [50, 51] * 4, [60]]
FEW = dict.fromkeys(range(40, 48), 9.0)  # a text among eight tokens repeats itself


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    folder = str(tiny_model(tmp_path_factory.mktemp("outputs"), "llama"))

    def made(speculation: Speculation = OFF, **options: object) -> Engine:
        options.setdefault("kv_cache_bytes", 4 << 20)
        return load_engine(folder, speculation, **options)  # type: ignore[arg-type]

    return made


def params(max_tokens: int = 30, **options: object) -> SamplingParams:
    return SamplingParams(max_tokens=max_tokens, ignore_eos=True, logit_bias=FEW, **options)  # type: ignore[arg-type]


def run(engine: Engine) -> tuple[list[Update], list[StepStats]]:
    """Every update until all is done, and every step's own count."""
    updates, steps = [], []
    while engine.has_work:
        step = engine.step()
        assert step.stats is not None
        updates += step
        steps.append(step.stats)
    engine.pool.check([])
    return updates, steps


# ------------------------------------------------------------------ updates


@pytest.mark.parametrize("speculation", [OFF, NGRAM], ids=["off", "ngram"])
def test_the_last_update_of_a_choice_brings_all_of_it(make: Make, speculation: Speculation) -> None:
    engine = make(speculation)
    names = [
        engine.add_request(prompt, params(9 + index, n=2, temperature=0.8, seed=index))
        for index, prompt in enumerate(PROMPTS)
    ]
    updates, _ = run(engine)
    for name, index in ((name, index) for name in names for index in range(2)):
        *early, last = (u for u in updates if (u.request_id, u.index) == (name, index))
        assert [update.generation for update in early] == [None] * len(early)
        done = last.generation
        assert done is not None
        assert (done.request_id, done.index) == (name, index)
        assert done.tokens == [token for update in (*early, last) for token in update.tokens]
        assert done.text == "".join(update.text for update in (*early, last))
        assert done.finish_reason is last.finish_reason is FinishReason.LENGTH
        assert done.temperature == 0.8
        assert done.finished_ns is not None


def finished(engine: Engine) -> list[Generation]:
    updates, _ = run(engine)
    return [update.generation for update in updates if update.generation is not None]


def test_the_clock_of_a_generation(make: Make) -> None:
    engine = make(NGRAM, max_num_seqs=1, max_num_batched_tokens=8)
    before = time.perf_counter_ns()
    for prompt in PROMPTS:
        engine.add_request(prompt, params())
    engine.step()  # the first chunk of the first prompt
    between = time.perf_counter_ns()
    generations = finished(engine)
    moments = [(g.added_ns, g.started_ns, g.first_token_ns, g.finished_ns) for g in generations]
    for each in moments:
        assert list(each) == sorted(each)  # type: ignore[type-var]
        assert each[0] >= before
    _, started, first_token, _ = moments[0]
    assert started is not None
    assert first_token is not None
    assert started < between < first_token  # a prompt in chunks starts with the first of them
    for done, following in pairwise(moments):
        assert following[0] < between  # all were added at once,
        assert done[3] <= following[1]  # type: ignore[operator]  # and waited for their turn


def test_who_was_never_computed_has_not_started(make: Make) -> None:
    engine = make(max_num_seqs=1)
    for name in ("first", "second"):
        engine.add_request(PROMPTS[0], params(), request_id=name)
    engine.step()
    running, waiting = (live.generation for live in list(engine._live.values()))
    engine.abort("first")
    engine.abort("second")
    assert running.started_ns is not None
    assert (waiting.started_ns, waiting.ttft_s) == (None, None)


def test_a_request_may_have_arrived_before(make: Make) -> None:
    engine = make()
    arrived = time.perf_counter_ns() - 5_000_000_000
    engine.add_request(PROMPTS[0], params(n=2), arrived_ns=arrived)
    for done in finished(engine):
        assert done.added_ns == arrived
        assert done.ttft_s is not None
        assert done.ttft_s >= 5.0


# ------------------------------------------------------------------ steps


@pytest.mark.parametrize("budget", [9, 512])
@pytest.mark.parametrize("speculation", [OFF, NGRAM], ids=["off", "ngram"])
def test_steps_add_up(make: Make, speculation: Speculation, budget: int) -> None:
    engine = make(speculation, max_num_batched_tokens=budget)
    for prompt in PROMPTS:
        engine.add_request(prompt, params())
    start = time.perf_counter()
    updates, steps = run(engine)
    spent = time.perf_counter() - start
    drafts = [length for step in steps for length in step.draft_lengths]
    seen = engine.acceptance
    assert (len(drafts), sum(drafts)) == (seen.num_rounds, seen.num_draft_tokens)
    assert sum(length > 0 for length in drafts) == seen.num_drafts
    assert (seen.num_drafts > 0) == (speculation is NGRAM)
    num_prompt_tokens = sum(map(len, PROMPTS))
    assert sum(step.num_prompt_tokens for step in steps) == num_prompt_tokens
    assert sum(step.num_tokens for step in steps) == num_prompt_tokens + len(drafts) + sum(drafts)
    assert max(step.num_tokens for step in steps) <= budget
    written = sum(len(update.tokens) for update in updates)
    assert sum(step.num_emitted for step in steps) == written == 30 * len(PROMPTS)
    # Each prompt's own first token, one for each round, and the drafts that were right.
    assert written == len(PROMPTS) + seen.num_rounds + seen.num_accepted_tokens
    for step in steps:
        in_prompts = step.num_sequences - len(step.draft_lengths)
        assert step.num_sequences <= len(PROMPTS)
        assert step.is_decoding == (in_prompts == 0)
        assert step.seconds > 0
    assert sum(step.seconds for step in steps) <= spent


def test_a_text_that_ends_among_its_drafts(make: Make) -> None:
    """Drafts behind the end were computed, and are not written."""
    engine = make(NGRAM)
    [token] = engine.tokenizer.encode("x")
    wanted = SamplingParams(logit_bias={token: 90.0}, stop=("xxxx",), max_tokens=30)
    engine.add_request([token] * 20, wanted)
    updates, steps = run(engine)
    assert [step.num_emitted for step in steps] == [1, 3]
    assert [step.draft_lengths for step in steps] == [[], [4]]
    assert updates[-1].num_accepted == engine.acceptance.num_accepted_tokens == 3
    assert engine.step() == StepResult([], None)  # nothing to do


def test_who_comes_back_is_computed_again(make: Make) -> None:
    """Its tokens count as a prompt's, and a step with them is not one of rounds alone."""
    engine = make(kv_cache_bytes=12 * BLOCK_SIZE * TOKEN_BYTES, reuse_prefixes=False)
    for first in (40, 44):
        engine.add_request([first] * 60, params(60))
    _, steps = run(engine)
    assert engine.scheduler.num_preemptions == 1
    [back] = [s for s in steps if s.num_prompt_tokens and len(s.draft_lengths) == s.num_sequences]
    assert not back.is_decoding
    assert back.num_prompt_tokens > 60  # the prompt, and what it had written
    assert sum(step.num_emitted for step in steps) == 120
    assert sum(len(step.draft_lengths) for step in steps) == engine.acceptance.num_rounds == 118
