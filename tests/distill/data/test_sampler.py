from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch

from outdraft.distill.data.sampler import SampledText, SampleRequest, TextSampler
from outdraft.distill.target import Target
from outdraft.engine.assemble import load_engine
from outdraft.engine.sequence import SamplingParams
from outdraft.speculation import OFF

PROMPTS = [[40 + (i + j) % 8 for j in range(3 + 5 * i)] for i in range(7)]


def make(
    target: Target, num_texts: int = 3, top: int = 4, eos: tuple[int, ...] = ()
) -> TextSampler:
    return TextSampler(
        target.network,
        num_texts=num_texts,
        room=96,
        max_tokens=40,
        eos_ids=eos or target.eos_ids,
        top=top,
    )


def test_greedy_texts_are_the_engines(target: Target) -> None:
    written = make(target).run([SampleRequest(prompt, 0.0, 20) for prompt in PROMPTS], seed=0)
    engine = load_engine(str(target.files.path), OFF, kv_cache_bytes=1 << 22)
    done = engine.generate(PROMPTS, SamplingParams(max_tokens=20))
    assert [one.tokens.tolist() for one in written] == [one.tokens for one in done]


def test_the_likeliest_tokens_are_kept_with_their_logprobs(target: Target) -> None:
    [one] = make(target).run([SampleRequest(PROMPTS[2], 0.0, 5)], seed=0)
    hidden, _ = target.network(torch.tensor([[*PROMPTS[2], *one.tokens.tolist()]]))
    expected = target.network.logits(hidden)[0, len(PROMPTS[2]) - 1 : -1].log_softmax(1).topk(4)
    assert one.top_ids.tolist() == expected.indices.tolist()
    assert torch.allclose(one.top_logprobs.float(), expected.values, atol=5e-3)
    assert one.top_ids[:, 0].tolist() == one.tokens.tolist()


@pytest.mark.slow
def test_draws_follow_the_distribution(target: Target) -> None:
    prompt = PROMPTS[1]
    hidden, _ = target.network(torch.tensor([prompt]))
    expected = (target.network.logits(hidden)[0, -1] / 0.7).softmax(0)
    written = make(target, num_texts=64).run([SampleRequest(prompt, 0.7, 1)] * 1500, seed=3)
    counts = torch.bincount(torch.cat([one.tokens for one in written]), minlength=len(expected))
    distance = (counts / counts.sum() - expected).abs().sum() / 2
    assert distance < 0.1


def test_a_seed_writes_the_same_texts_again(target: Target) -> None:
    wanted = [SampleRequest(prompt, 1.0, 12) for prompt in PROMPTS]
    sampler = make(target)
    first, again = sampler.run(wanted, seed=5), sampler.run(wanted, seed=5)
    other = sampler.run(wanted, seed=6)
    assert [x.tokens.tolist() for x in first] == [x.tokens.tolist() for x in again]
    assert [x.tokens.tolist() for x in first] != [x.tokens.tolist() for x in other]


def test_texts_end_at_an_end_token_or_where_they_must(target: Target) -> None:
    [whole] = make(target).run([SampleRequest(PROMPTS[0], 0.0, 40)], seed=0)
    end = int(whole.tokens[6])
    ending = make(target, eos=(end,))
    [cut] = ending.run([SampleRequest(PROMPTS[0], 0.0, 40)], seed=0)
    assert cut.has_ended
    assert cut.tokens.tolist() == whole.tokens[: whole.tokens.tolist().index(end) + 1].tolist()
    [short] = make(target, eos=(383,)).run([SampleRequest(PROMPTS[0], 0.0, 3)], seed=0)
    assert len(short.tokens) == 3
    assert not short.has_ended
    [full] = make(target, eos=(383,)).run([SampleRequest(PROMPTS[0] * 30, 0.0, 40)], seed=0)
    assert len(PROMPTS[0]) * 30 + len(full.tokens) == 96


def test_a_text_may_ask_for_another(target: Target) -> None:
    def follow(index: int, written: SampledText) -> SampleRequest | None:
        if index > 1:
            return None
        return SampleRequest([*PROMPTS[index], *written.tokens.tolist()], 0.0, 4)

    texts = make(target).run(
        [SampleRequest(PROMPTS[0], 0.0, 4), SampleRequest(PROMPTS[1], 0.0, 4)], 0, follow
    )
    [whole] = make(target).run([SampleRequest(PROMPTS[0], 0.0, 8)], seed=0)
    assert len(texts) == 4
    assert [*texts[0].tokens.tolist(), *texts[2].tokens.tolist()] == whole.tokens.tolist()


def test_texts_are_cut_where_it_is_over(target: Target) -> None:
    """Every 16 steps: what is being written is cut, what waits is left out."""
    requests = [SampleRequest(prompt, 0.0, 40) for prompt in PROMPTS]
    whole = make(target, eos=(383,)).run(requests, seed=0)
    seen: list[dict[int, int]] = []

    def is_over(lengths: Mapping[int, int]) -> bool:
        seen.append(dict(lengths))
        return len(seen) == 2

    cut = make(target, eos=(383,)).run_until(requests, 0, is_over)
    assert seen == [dict.fromkeys(range(3), 16), dict.fromkeys(range(3), 32)], "short prompts first"
    assert sorted(cut) == [0, 1, 2]
    for index, text in cut.items():
        assert text.tokens.tolist() == whole[index].tokens[:32].tolist()
        assert not text.has_ended
    assert len(cut[0].first(5).tokens) == len(cut[0].first(5).top_logprobs) == 5
    assert cut[0].first(32) is cut[0]
