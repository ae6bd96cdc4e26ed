"""The engine's API: requests in, updates and generations out, and every block given back."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from outdraft import Engine, Generation, SamplingParams, Speculation, load_engine
from outdraft.engine.loading import BLOCK_SIZE
from outdraft.engine.runners.runner import Run
from outdraft.engine.sequence import FinishReason
from outdraft.errors import OptionError, PairingError, RequestError
from outdraft.speculation import OFF
from outdraft.testing.tiny_models import tiny_model

Make = Callable[..., Engine]
PROMPT = " the model of the draft and the model of the target and the model of"
NGRAM = Speculation(method="ngram", k=4, prompt_lookup_min=1)
TOKEN_BYTES = 2 * 2 * 2 * 16 * 4  # keys and values, layers, kv heads, head size, float32


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    root = tmp_path_factory.mktemp("engine")
    return {
        "target": str(tiny_model(root / "target", "llama")),
        "draft": str(tiny_model(root / "draft", "llama", perturb=0.05)),
        "other": str(tiny_model(root / "other", "llama", vocab=300)),
    }


@pytest.fixture(scope="module")
def make(folders: dict[str, str]) -> Make:
    def made(speculation: Speculation = OFF, **options: object) -> Engine:
        options.setdefault("kv_cache_bytes", 4 << 20)
        return load_engine(folders["target"], speculation, **options)  # type: ignore[arg-type]

    return made


@pytest.fixture(scope="module")
def drafted(folders: dict[str, str]) -> Speculation:
    return Speculation(method="draft_model", draft=folders["draft"], k=4)


def one(engine: Engine, prompt: str | list[int] = PROMPT, **options: object) -> Generation:
    k = options.pop("k", None)
    params = SamplingParams(**{"max_tokens": 40, "ignore_eos": True, **options})  # type: ignore[arg-type]
    [generation] = engine.generate([prompt], params, k=k)  # type: ignore[arg-type]
    engine.pool.check([])
    return generation


# ------------------------------------------------------------------ the API


def test_step_by_step(make: Make) -> None:
    engine = make(NGRAM)
    assert not engine.has_work
    assert engine.step().updates == []
    name = engine.add_request(PROMPT, SamplingParams(max_tokens=9, ignore_eos=True))
    assert (engine.has_work, engine.scheduler.num_waiting, engine.scheduler.num_running) == (
        True,
        1,
        0,
    )
    updates = []
    while engine.has_work:
        updates += engine.step()
    assert {update.request_id for update in updates} == {name}
    assert [update.finish_reason for update in updates[:-1]] == [None] * (len(updates) - 1)
    assert updates[-1].finish_reason is FinishReason.LENGTH
    expected = one(make(), max_tokens=9)
    assert [token for update in updates for token in update.tokens] == expected.tokens
    assert "".join(update.text for update in updates) == expected.text
    for update in updates:
        assert update.num_accepted in (len(update.tokens), len(update.tokens) - 1)


def test_stream_ends_with_its_generation(make: Make) -> None:
    *updates, last = make(NGRAM).stream(PROMPT, SamplingParams(max_tokens=12, ignore_eos=True))
    assert isinstance(last, Generation)
    assert "".join(update.text for update in updates) == last.text
    assert last.tokens == one(make(), max_tokens=12).tokens
    assert last.ttft_s is not None
    assert last.tokens_per_s is not None
    assert last.acceptance.num_rounds == len(updates) - 1  # the first token is the prompt's


def test_a_stream_left_early_gives_everything_back(make: Make) -> None:
    engine = make(NGRAM)
    stream = engine.stream(PROMPT, SamplingParams(max_tokens=40, ignore_eos=True))
    next(stream)
    stream.close()
    assert not engine.has_work
    engine.pool.check([])


@pytest.mark.parametrize("after", range(0, 12, 2))
def test_abort_at_any_moment(make: Make, drafted: Speculation, after: int) -> None:
    engine = make(drafted, max_num_seqs=3, max_num_batched_tokens=32)
    params = SamplingParams(max_tokens=30, ignore_eos=True, n=2)
    names = [engine.add_request(PROMPT * (1 + i), params) for i in range(3)]
    for _ in range(after):
        engine.step()
    engine.abort(names[1])
    engine.abort(names[1])  # harmless
    engine.abort("never heard of")
    for _ in range(3):
        assert names[1] not in {update.request_id for update in engine.step()}
    engine.abort(names[0])
    engine.abort(names[2])
    assert not engine.has_work
    engine.pool.check([])
    engine.drafting.proposers["draft_model"].pool.check([])  # type: ignore[union-attr, attr-defined]
    assert one(engine).tokens == one(make()).tokens  # and it goes on as if nothing had been


def test_n_choices_differ_and_the_first_is_the_single_one(make: Make) -> None:
    params = SamplingParams(temperature=1.0, seed=5, n=3, max_tokens=20, ignore_eos=True)
    choices = make(NGRAM).generate([PROMPT], params)
    assert [choice.index for choice in choices] == [0, 1, 2]
    assert len({tuple(choice.tokens) for choice in choices}) == 3
    assert choices[0].tokens == one(make(), temperature=1.0, seed=5, max_tokens=20).tokens


def test_seeds_make_texts(make: Make) -> None:
    first, again, other = (one(make(), temperature=1.0, seed=seed).tokens for seed in (5, 5, 6))
    assert first == again != other
    free, freer = (one(make(), temperature=1.0).tokens for _ in range(2))
    assert free != freer


# ------------------------------------------------------------------ how a text ends


def test_stop_strings_cut_the_text(make: Make) -> None:
    whole = one(make(), max_tokens=40)
    stop = whole.text[7:10]
    for engine in (make(), make(NGRAM)):
        cut = one(engine, stop=(stop,))
        assert cut.finish_reason is FinishReason.STOP
        assert cut.text == whole.text.split(stop, 1)[0]
        assert cut.tokens == whole.tokens[: len(cut.tokens)]


def test_a_stop_string_before_min_tokens_is_text(make: Make) -> None:
    whole = one(make(), max_tokens=40)
    stop = whole.text[:2]
    late = one(make(), stop=(stop,), min_tokens=30)
    assert len(late.tokens) >= 30
    assert whole.text.startswith(late.text)
    assert late.text.startswith(stop)


@pytest.mark.parametrize("speculation", [OFF, NGRAM], ids=["off", "ngram"])
def test_stop_tokens_end_the_text_unseen(make: Make, speculation: Speculation) -> None:
    whole = one(make(), max_tokens=40)
    stop = whole.tokens[12]
    end = whole.tokens.index(stop) + 1
    cut = one(make(speculation), stop_token_ids=(stop,))
    assert (cut.tokens, cut.finish_reason) == (whole.tokens[:end], FinishReason.STOP)
    late = one(make(speculation), stop_token_ids=(stop,), min_tokens=30)
    assert len(late.tokens) >= 30
    assert stop not in late.tokens[:29]


def test_eos_ends_the_text_unless_ignored(make: Make) -> None:
    bias = {0: 100.0}  # the end of text, at once
    ended = one(make(), logit_bias=bias, ignore_eos=False)
    assert (ended.tokens, ended.text, ended.finish_reason) == ([0], "", FinishReason.STOP)
    assert one(make(), logit_bias=bias, ignore_eos=True, max_tokens=5).tokens == [0] * 5
    later = one(make(), logit_bias=bias, ignore_eos=False, min_tokens=4)
    assert (later.tokens.index(0), len(later.tokens)) == (4, 5)


@pytest.mark.parametrize("max_tokens", [1, 2, 3, 6])
def test_max_tokens_is_exact(make: Make, drafted: Speculation, max_tokens: int) -> None:
    for engine in (make(NGRAM), make(drafted)):
        ended = one(engine, max_tokens=max_tokens)
        assert (len(ended.tokens), ended.finish_reason) == (max_tokens, FinishReason.LENGTH)


def test_a_full_context_ends_the_text(make: Make, drafted: Speculation) -> None:
    texts = []
    for speculation in (OFF, NGRAM, drafted):
        engine = make(speculation, max_model_len=50)
        ended = one(engine, list(range(10, 50)), max_tokens=100)
        assert (len(ended.tokens), ended.finish_reason) == (10, FinishReason.LENGTH)
        texts.append(ended.tokens)
    assert texts[0] == texts[1] == texts[2]


# ------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("prompt", "parts"),
    [
        (list(range(3, 53)), ("50 tokens", "holds 50")),
        ([5] * 70, ("70 tokens", "holds 50", "at least 21")),
        ([], ("empty",)),
        ("", ("empty",)),
        ([5, 384], ("384", "vocabulary")),
        ([-1], ("-1", "vocabulary")),
    ],
)
def test_impossible_prompts(make: Make, prompt: str | list[int], parts: tuple[str, ...]) -> None:
    engine = make(max_model_len=50)
    with pytest.raises(RequestError) as refused:
        engine.generate([[5], prompt])
    assert all(part in str(refused.value) for part in parts), refused.value
    assert "\n" not in str(refused.value)
    assert not engine.has_work  # the prompt before it was let go, too
    engine.pool.check([])
    tokens = engine.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
    with pytest.raises(RequestError) as checked:
        engine.check(tokens, SamplingParams())
    assert str(checked.value) == str(refused.value)


def test_impossible_options(make: Make, folders: dict[str, str]) -> None:
    engine = make()
    with pytest.raises(OptionError, match="logit_bias: 999"):
        one(engine, logit_bias={999: 1.0})
    with pytest.raises(OptionError, match="stop_token_ids: 999"):
        one(engine, stop_token_ids=(999,))
    with pytest.raises(OptionError, match="k must not be negative"):
        one(engine, k=-1)
    with pytest.raises(OptionError, match="2 prompts and 1"):
        engine.generate([PROMPT, PROMPT], [SamplingParams()])
    with pytest.raises(OptionError, match="max_model_len 9999 is over the 512"):
        make(max_model_len=9999)
    with pytest.raises(OptionError, match="kv_cache_memory_bytes 100 holds 0 blocks"):
        make(kv_cache_bytes=100)
    with pytest.raises(OptionError, match=r"dtype 'float31'.*float32"):
        make(dtype="float31")
    with pytest.raises(PairingError, match=r"384 tokens, the draft's 300; .* id 300"):
        make(Speculation(method="draft_model", draft=folders["other"]))
    with pytest.raises(OptionError, match="draft_tensor_parallel_size is 2; this engine"):
        make(Speculation("ngram", draft_tensor_parallel_size=2))


def test_a_check_changes_nothing(make: Make) -> None:
    engine = make(max_model_len=50)
    engine.check(list(range(3, 52)), SamplingParams(logit_bias={383: 1.0}), k=0)
    for params, k, message in (
        (SamplingParams(logit_bias={384: 1.0}), None, "logit_bias: 384"),
        (SamplingParams(stop_token_ids=(384,)), None, "stop_token_ids: 384"),
        (SamplingParams(), -1, "k must not be negative"),
    ):
        with pytest.raises(OptionError, match=message):
            engine.check([5], params, k)
    assert (engine.has_work, engine.scheduler.num_waiting) == (False, 0)
    assert engine.add_request([5]) == "req-0"  # not even a number was used up


def test_a_request_id_is_used_once_at_a_time(make: Make) -> None:
    engine = make()
    engine.add_request(PROMPT, request_id="mine")
    with pytest.raises(RequestError, match="'mine' is in use"):
        engine.add_request(PROMPT, request_id="mine")
    engine.abort("mine")
    assert engine.add_request(PROMPT, request_id="mine") == "mine"


# ------------------------------------------------------------------ speculation


def test_a_request_chooses_its_own_k(make: Make) -> None:
    engine = make(NGRAM)
    never, short, usual = (one(engine, max_tokens=60, k=k) for k in (0, 1, None))
    assert never.tokens == short.tokens == usual.tokens
    assert never.acceptance.num_draft_tokens == 0
    assert len(short.acceptance.drafted_per_position) == 1
    assert len(usual.acceptance.drafted_per_position) == 4
    assert engine.acceptance.num_draft_tokens == sum(
        each.acceptance.num_draft_tokens for each in (never, short, usual)
    )


@pytest.mark.parametrize(
    "options",
    [{}, {"temperature": 0.8, "seed": 3}, {"temperature": 1.2, "seed": 3, "top_p": 0.9}],
    ids=["greedy", "hot", "truncated"],
)
def test_logprobs_are_those_of_the_processed_distribution(
    make: Make, drafted: Speculation, options: dict[str, float]
) -> None:
    off, ngram, draft = (
        one(make(s), logprobs=5, repetition_penalty=1.3, **options) for s in (OFF, NGRAM, drafted)
    )
    assert off.tokens == ngram.tokens == draft.tokens
    assert off.logprobs == ngram.logprobs == draft.logprobs
    assert off.logprobs is not None
    assert [each.token for each in off.logprobs] == off.tokens
    for each in off.logprobs:
        assert [value for _, value in each.top] == sorted((v for _, v in each.top), reverse=True)
        assert len(each.top) == 5
        assert each.logprob <= each.top[0][1] + 1e-6
    if not options:
        assert all(each.token == each.top[0][0] for each in off.logprobs)


def test_logprobs_equal_the_log_softmax_of_the_logits(make: Make) -> None:
    engine = make()
    got = one(engine, temperature=0.5, seed=1, max_tokens=12, logprobs=0)
    prompt = engine.tokenizer.encode(PROMPT)
    tokens = [*prompt, *got.tokens]
    run = Run(tokens[:-1], 0, [1, 2], num_logits=12)
    expected = (make()._runner.run([run]).logits / 0.5).log_softmax(1)
    at = expected.gather(1, torch.tensor(got.tokens)[:, None])[:, 0]
    assert got.logprobs is not None
    assert torch.allclose(torch.tensor([each.logprob for each in got.logprobs]), at, atol=1e-5)


def test_typical_is_labelled_lossy(make: Make) -> None:
    lossy = make(Speculation(method="ngram", k=4, rule="typical"))
    assert one(lossy).is_lossy
    assert not one(lossy, k=0).is_lossy
    assert not one(make(NGRAM)).is_lossy
    assert not one(make(Speculation(method="ngram", k=4, rule="rejection"))).is_lossy


# ------------------------------------------------------------------ the cache


def test_a_known_prefix_is_not_computed_again(make: Make) -> None:
    prompt = list(range(3, 203))
    expected = one(make(reuse_prefixes=False), prompt)
    engine = make(NGRAM)
    first, second = one(engine, prompt), one(engine, prompt)
    full = 199 // BLOCK_SIZE * BLOCK_SIZE  # the last token's logits are needed: it is computed
    assert (first.num_cached_tokens, second.num_cached_tokens) == (0, full)
    assert first.tokens == second.tokens == expected.tokens
    assert engine.scheduler.prefix_hits == (full, 400)
    follow_up = one(engine, [*prompt, *first.tokens])  # output is reused as well
    assert follow_up.num_cached_tokens == 239 // BLOCK_SIZE * BLOCK_SIZE
    assert follow_up.tokens == one(make(), [*prompt, *first.tokens]).tokens
    assert engine.scheduler.prefix_hits == (full + follow_up.num_cached_tokens, 640)


def test_a_text_that_ends_among_its_drafts_shares_only_what_it_has(
    make: Make, folders: dict[str, str]
) -> None:
    """Three tokens short of a block's end, one computed behind it: that block is not full."""
    engine = make(Speculation(method="draft_model", draft=folders["target"], k=8))
    [token] = engine.tokenizer.encode("x")
    prompt = [token] * (4 * BLOCK_SIZE - 8)
    ended = one(engine, prompt, logit_bias={token: 90.0}, stop=("xxxxx",))
    assert (ended.tokens, ended.finish_reason) == ([token] * 5, FinishReason.STOP)
    assert ended.acceptance.num_draft_tokens == 8
    assert len(engine.pool._block_of) == 3


CROWD = [list(range(3 + i, 60 + 3 * i)) for i in range(5)]
LONG = SamplingParams(temperature=0.8, seed=2, max_tokens=90, ignore_eos=True)


@pytest.fixture(scope="module")
def roomy(make: Make) -> list[list[int]]:
    """What each of them gets alone."""
    return [each.tokens for each in make(max_num_seqs=1).generate(CROWD, LONG)]


@pytest.mark.parametrize("room", [256, 320, 448])  # tokens the cache holds
def test_preemption_does_not_change_a_text(
    make: Make, drafted: Speculation, roomy: list[list[int]], room: int
) -> None:
    for speculation in (OFF, NGRAM, drafted):
        engine = make(speculation, kv_cache_bytes=room * TOKEN_BYTES)
        assert engine.pool.num_blocks == room // BLOCK_SIZE
        generations = engine.generate(CROWD, LONG)
        assert [g.tokens for g in generations] == roomy
        assert engine.scheduler.num_preemptions == sum(g.num_preemptions for g in generations) > 0
        # Found and looked for when they first came; who comes back finds its own.
        assert engine.scheduler.prefix_hits == (0, sum(map(len, CROWD)))
        assert all(g.num_cached_tokens <= g.num_prompt_tokens for g in generations)
        engine.pool.check([])


def test_chunked_prefill_does_not_change_a_text(make: Make) -> None:
    prompts = [list(range(3, 200)), list(range(50, 60)), list(range(100, 300))]
    params = SamplingParams(max_tokens=30, ignore_eos=True)
    whole = [g.tokens for g in make().generate(prompts, params)]
    for budget in (1, 7, 64):
        chunked = make(NGRAM, max_num_batched_tokens=budget).generate(prompts, params)
        assert [g.tokens for g in chunked] == whole
