"""A draft model proposes: the contract, and drafts that fit the text in every situation."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from outdraft.catalog import ModelFiles
from outdraft.engine.assemble import load_engine
from outdraft.engine.kv_cache import BlockPool, KVCache
from outdraft.engine.loading import load_model
from outdraft.engine.models.decoder import Decoder
from outdraft.engine.proposers.draft_model import DraftModelProposer
from outdraft.engine.proposers.proposer import DraftRequest, Proposer
from outdraft.engine.runners.eager import EagerRunner
from outdraft.engine.runners.runner import Run
from outdraft.engine.sequence import SamplingParams, Sequence
from outdraft.speculation import OFF, Speculation
from outdraft.testing.contracts import ProposerContract
from outdraft.testing.tiny_models import tiny_model
from outdraft.testing.tiny_tokenizer import TOKENIZER_SIZE

BLOCK_SIZE = 8
HOT = SamplingParams(temperature=1.0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def decoder(folder: Path) -> Decoder:
    path = tiny_model(folder / "one", "llama", context=128)
    model = load_model(
        ModelFiles("tiny", path),
        dtype="float32",
        device="cpu",
        quantization="none",
        kv_cache_bytes=1 << 20,
        max_context=None,
        reuse_prefixes=False,
        on_layer=lambda done, total: None,
    )
    return model.decoder


def runner_of(decoder: Decoder, num_blocks: int) -> EagerRunner:
    spec = decoder.spec
    return EagerRunner(
        decoder,
        KVCache(
            spec.num_layers,
            num_blocks,
            BLOCK_SIZE,
            spec.num_kv_heads,
            spec.head_dim,
            torch.float32,
            torch.device("cpu"),
        ),
    )


def proposer_of(
    decoder: Decoder,
    *,
    num_blocks: int = 64,
    keep_probs: bool = False,
    vocab_size: int = TOKENIZER_SIZE,
    max_context: int = 128,
    max_prefill_tokens: int = 512,
) -> DraftModelProposer:
    return DraftModelProposer(
        runner_of(decoder, num_blocks),
        BlockPool(num_blocks, BLOCK_SIZE),
        vocab_size=vocab_size,
        max_context=max_context,
        keep_probs=keep_probs,
        max_prefill_tokens=max_prefill_tokens,
    )


class TestContract(ProposerContract):
    vocab_size = TOKENIZER_SIZE
    keep_probs = False

    @pytest.fixture(autouse=True)
    def _decoder(self, decoder: Decoder) -> None:
        self.decoder = decoder

    def make_proposer(self) -> Proposer:
        return proposer_of(self.decoder, keep_probs=self.keep_probs, vocab_size=self.vocab_size)


class TestContractWithProbabilities(TestContract):
    params = SamplingParams(temperature=1.0, top_p=0.9, repetition_penalty=1.2)
    keep_probs = True


class TestContractWithWiderTarget(TestContract):
    """The target's vocabulary is padded further: it may write what the draft never saw."""

    vocab_size = TOKENIZER_SIZE + 16
    params = SamplingParams(temperature=1.0, frequency_penalty=0.5, logit_bias={399: 1.0})
    keep_probs = True


def sequence(number: int, tokens: list[int], params: SamplingParams | None = None) -> Sequence:
    params = params or SamplingParams()
    return Sequence(number, "r", 0, list(tokens), 1, params, number, frozenset())


def greedy(decoder: Decoder, tokens: list[int], count: int) -> list[int]:
    """What the model writes, all of it computed anew for every token."""
    written = list(tokens)
    for _ in range(count):
        run = Run(written, 0, range(1, 32), num_logits=1)
        written.append(int(runner_of(decoder, 32).run([run]).logits.argmax()))
    return written[len(tokens) :]


PROMPT = [17 * i % 300 + 20 for i in range(30)]


def test_drafts_are_what_the_model_writes(decoder: Decoder) -> None:
    """Accepted, refused or not asked: behind it always are the logits of the whole text."""
    proposer = proposer_of(decoder)
    one = sequence(0, PROMPT)
    for accepted, extra in ((4, [50]), (0, [60]), (2, [70]), (4, [80, 81, 82, 83, 84]), (1, [90])):
        [draft] = proposer.propose([DraftRequest(one, 4)])
        assert draft.tokens == greedy(decoder, one.tokens, 4)
        one.tokens += [*draft.tokens[:accepted], *extra]
        proposer.pool.check(proposer.tables)


def test_a_known_beginning_is_shared_and_right(decoder: Decoder) -> None:
    proposer = proposer_of(decoder)
    [expected] = proposer.propose([DraftRequest(sequence(0, PROMPT), 4)])
    [other] = proposer.propose([DraftRequest(sequence(1, PROMPT), 4)])
    assert other.tokens == expected.tokens
    first, second = proposer.tables
    assert first[:3] == second[:3]  # 30 tokens fill three blocks of 8
    assert not set(first[3:]) & set(second[3:])
    proposer.forget()
    proposer.propose([DraftRequest(sequence(2, PROMPT), 4)])
    assert not set(proposer.tables[2]) & set(first)
    proposer.pool.check(proposer.tables)


def test_long_prompts_are_read_over_several_rounds(decoder: Decoder) -> None:
    proposer = proposer_of(decoder, max_prefill_tokens=12)
    one = sequence(0, PROMPT)
    lengths = [len(proposer.propose([DraftRequest(one, 3)])[0].tokens) for _ in range(3)]
    assert lengths == [0, 0, 3]
    assert proposer.propose([DraftRequest(one, 3)])[0].tokens == greedy(decoder, PROMPT, 3)


def test_a_full_pool_means_shorter_drafts_and_no_harm(decoder: Decoder) -> None:
    proposer = proposer_of(decoder, num_blocks=9)  # 64 tokens
    texts = [sequence(number, [number + 5, *PROMPT[1:]]) for number in range(3)]
    drafts = proposer.propose([DraftRequest(one, 4) for one in texts])
    assert [len(draft.tokens) for draft in drafts][2] == 0
    assert drafts[0].tokens == greedy(decoder, texts[0].tokens, 4)[: len(drafts[0].tokens)]
    proposer.pool.check(proposer.tables)
    proposer.release(texts[0])
    [late] = proposer.propose([DraftRequest(texts[2], 2)])
    assert late.tokens == greedy(decoder, texts[2].tokens, 2)
    for one in texts:
        proposer.release(one)
    assert proposer.pool.num_used == 0


def test_the_drafts_context_may_be_the_shorter_one(decoder: Decoder) -> None:
    proposer = proposer_of(decoder, max_context=32)
    one = sequence(0, PROMPT)
    assert (
        len(proposer.propose([DraftRequest(one, 8)])[0].tokens) == 3
    )  # positions 30, 31 can be read
    one.tokens += [5] * 5
    assert proposer.propose([DraftRequest(one, 8)])[0].tokens == []


@pytest.mark.parametrize("rule", ["coupled", "rejection"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_draft_that_is_the_target_is_always_right(
    folder: Path, rule: str, temperature: float
) -> None:
    path = str(tiny_model(folder / "same", "llama", context=128))
    engine = load_engine(
        path,
        Speculation(method="draft_model", draft=path, k=4, rule=rule),
        kv_cache_bytes=4 << 20,
    )
    params = SamplingParams(temperature=temperature, seed=3, max_tokens=40, ignore_eos=True)
    engine.generate([PROMPT, PROMPT[:9]], params)
    assert engine.acceptance.num_draft_tokens > 50
    # Rejection compares p with q: the same numbers but for rounding, so a coin may fall between.
    assert engine.acceptance.rate == 1.0 if rule == "coupled" else engine.acceptance.rate > 0.98
    assert engine.pool.num_used == 0


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_draft_that_errs_does_not_change_the_text(folder: Path, temperature: float) -> None:
    target = str(tiny_model(folder / "target", "llama", context=128))
    draft = str(tiny_model(folder / "draft", "llama", context=128, perturb=0.03))
    params = SamplingParams(temperature=temperature, seed=3, max_tokens=40, ignore_eos=True)
    speculation = Speculation(method="draft_model", draft=draft, k=4)
    texts = []
    for one in (OFF, speculation):
        engine = load_engine(target, one, kv_cache_bytes=4 << 20)
        texts.append([g.tokens for g in engine.generate([PROMPT, PROMPT[:9]], params)])
    assert texts[0] == texts[1]
    assert engine.acceptance.rate is not None
    assert 0.2 < engine.acceptance.rate < 1.0
