"""A head proposes: the contract, and drafts that are what it computes over the whole text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from outdraft.engine.assemble import load_engine
from outdraft.engine.draft_lengths import EVERYBODY
from outdraft.engine.engine import Engine
from outdraft.engine.kv_cache import BlockPool, KVCache
from outdraft.engine.loading import LoadedModel
from outdraft.engine.models.head import load_head
from outdraft.engine.models.weights import SafetensorsWeights
from outdraft.engine.proposers import eagle
from outdraft.engine.proposers.eagle import EagleProposer
from outdraft.engine.proposers.proposer import DraftRequest, Observation, Proposer
from outdraft.engine.runners.eager import EagerHeadRunner, EagerRunner
from outdraft.engine.runners.runner import Run
from outdraft.engine.sequence import SamplingParams, Sequence
from outdraft.errors import CatalogError, PairingError
from outdraft.modelspec import read_head
from outdraft.speculation import OFF, Speculation
from outdraft.testing.contracts import ProposerContract
from outdraft.testing.tiny_heads import LAYOUTS, tiny_head
from outdraft.testing.tiny_models import tiny_model
from outdraft.testing.tiny_tokenizer import TOKENIZER_SIZE
from tests.engine.conftest import Load
from tests.engine.models.heads import PlainHead

BLOCK_SIZE = 8
PROMPT = [17 * i % 300 + 20 for i in range(30)]


class Bench:
    """A tiny target, a head for it, and what an engine would show the head."""

    def __init__(self, folder: Path, load: Load) -> None:
        self.target = tiny_model(folder / "target", "llama")
        self.folder = tiny_head(folder / "head", self.target, norm_before_residual=True)
        self.model: LoadedModel = load(self.target)
        spec, decoder = self.model.spec, self.model.decoder
        cache = KVCache(
            spec.num_layers, 64, 16, spec.num_kv_heads, spec.head_dim, decoder.dtype, decoder.device
        )
        self.runner = EagerRunner(decoder, cache, taps=(0, 1, 2))
        self.plain = PlainHead(self.folder, self.model.decoder.embedding)

    def features(self, tokens: list[int]) -> torch.Tensor:
        run = Run(tokens, 0, range(1, 40), num_logits=0)
        features = self.runner.run([run]).features
        assert features is not None
        return features

    def proposer(self, *, num_blocks: int = 64, keep_probs: bool = False) -> EagleProposer:
        spec = read_head(self.folder)
        head = load_head(spec, SafetensorsWeights(self.folder), self.model.decoder.embedding)
        cache = KVCache(
            1, num_blocks, BLOCK_SIZE, spec.num_kv_heads, spec.head_dim, head.dtype, head.device
        )
        return EagleProposer(
            EagerHeadRunner(head, cache), BlockPool(num_blocks, BLOCK_SIZE), keep_probs=keep_probs
        )

    def show(self, proposer: EagleProposer, one: Sequence, start: int | None = None) -> None:
        """All positions but the last, from `start` on or from where the head knows nothing."""
        memory = proposer._texts.get(one.id)
        known = memory.num_seen if memory else 0
        start = known if start is None else start
        if start < len(one) - 1:
            rows = self.features(one.tokens[:-1])[start:]
            proposer.observe([Observation(one, start, rows, 0, len(rows))])

    def greedy(self, tokens: list[int], k: int, start: int = 0) -> list[int]:
        """What the head drafts when its view of the text begins at `start`."""
        return self.plain.greedy(tokens[start:], self.features(tokens[:-1])[start:], k)


def entries(proposer: EagleProposer, one: Sequence) -> torch.Tensor:
    """(kv_heads, n, head_dim): the keys of all the text's tokens but the first."""
    memory = proposer._texts[one.id]
    assert isinstance(proposer._runner, EagerHeadRunner)
    keys = proposer._runner.cache.keys[0][:, memory.table].flatten(1, 2)
    return keys[:, 1 : memory.num_read - memory.origin]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, load: Load) -> Bench:
    return Bench(tmp_path_factory.mktemp("eagle"), load)


class TestContract(ProposerContract):
    vocab_size = TOKENIZER_SIZE
    keep_probs = False

    @pytest.fixture(autouse=True)
    def _bench(self, bench: Bench) -> None:
        self.bench = bench

    def make_proposer(self) -> Proposer:
        return self.bench.proposer(keep_probs=self.keep_probs)

    def show(self, proposer: Proposer, sequence: Sequence) -> None:
        assert isinstance(proposer, EagleProposer)
        self.bench.show(proposer, sequence)


class TestContractWithProbabilities(TestContract):
    params = SamplingParams(temperature=1.0, top_p=0.9)
    keep_probs = True


class TestContractWithTokensTreatedDifferently(TestContract):
    params = SamplingParams(temperature=1.0, repetition_penalty=1.2, logit_bias={40: 3.0})
    keep_probs = True


def sequence(number: int, tokens: list[int], params: SamplingParams | None = None) -> Sequence:
    params = params or SamplingParams()
    return Sequence(number, "r", 0, list(tokens), 1, params, number, frozenset())


def test_drafts_are_what_the_head_computes(bench: Bench) -> None:
    """Accepted, refused or not asked: entries behind the text are always of true features."""
    proposer = bench.proposer()
    one = sequence(0, PROMPT)
    for accepted, extra in ((4, [50]), (0, [60]), (2, [70]), (4, [80, 81, 82, 83, 84]), (1, [90])):
        bench.show(proposer, one)
        [draft] = proposer.propose([DraftRequest(one, 4)])
        assert draft.tokens == bench.greedy(one.tokens, 4)
        one.tokens += [*draft.tokens[:accepted], *extra]
        proposer.pool.check(proposer.tables)
    assert len({token for token in draft.tokens if token % 4 == 3}) == 0  # not in its vocabulary


def test_several_at_once_each_with_its_own_k(bench: Bench) -> None:
    proposer = bench.proposer()
    texts = [sequence(number, PROMPT[number : 20 + 2 * number]) for number in range(5)]
    for one in texts:
        bench.show(proposer, one)
    drafts = proposer.propose([DraftRequest(one, 1 + one.id) for one in texts])
    assert [draft.tokens for draft in drafts] == [
        bench.greedy(one.tokens, 1 + one.id) for one in texts
    ]
    assert [one.tokens for one in texts] == [PROMPT[n : 20 + 2 * n] for n in range(5)]


def test_without_features_there_is_no_draft(bench: Bench) -> None:
    proposer = bench.proposer()
    one = sequence(0, PROMPT)
    assert proposer.propose([DraftRequest(one, 3)])[0].tokens == []
    proposer.observe(
        [Observation(one, 0, bench.features(PROMPT[:12]), 0, 12)]
    )  # a first chunk of the prompt
    assert proposer.propose([DraftRequest(one, 3)])[0].tokens == []
    bench.show(proposer, one)
    assert proposer.propose([DraftRequest(one, 3)])[0].tokens == bench.greedy(PROMPT, 3)


def test_a_long_wait_is_read_on_the_way(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eagle, "_MAX_UNREAD", 5)
    proposer = bench.proposer()
    one = sequence(0, PROMPT[:4])
    for token in [*PROMPT[4:], 77, 78]:
        bench.show(proposer, one)
        assert proposer._texts[0].num_unread <= 5
        one.tokens.append(token)
    bench.show(proposer, one)
    assert proposer.propose([DraftRequest(one, 3)])[0].tokens == bench.greedy(one.tokens, 3)


def test_a_beginning_that_the_target_found_is_found_here_too(bench: Bench) -> None:
    proposer = bench.proposer()
    first, second = sequence(0, PROMPT), sequence(1, [*PROMPT[:24], *PROMPT[:5]])
    bench.show(proposer, first)
    proposer.propose([DraftRequest(first, 4)])
    bench.show(proposer, second, start=24)  # the target computes nothing before it
    mine, other = proposer.tables
    assert mine[:3] == other[:3]
    assert proposer.propose([DraftRequest(second, 4)])[0].tokens == bench.greedy(second.tokens, 4)
    assert not set(mine[3:]) & set(other[3:])
    fresh = bench.proposer()
    bench.show(fresh, second)
    fresh.propose([DraftRequest(second, 4)])
    # Also of the first token behind it, whose features are those of the last token before.
    assert torch.allclose(entries(proposer, second), entries(fresh, second), atol=1e-5)
    proposer.pool.check(proposer.tables)


def test_a_text_that_ended_leaves_its_last_block(bench: Bench) -> None:
    """So that the next turn of a chat is known to its last full block."""
    proposer = bench.proposer()
    one = sequence(0, PROMPT[:20])
    bench.show(proposer, one)
    proposer.propose([DraftRequest(one, 2)])
    one.tokens += PROMPT[20:25]
    proposer.observe([Observation(one, 19, bench.features(PROMPT[:24]), 19, 24)])
    proposer.release(one)
    other = sequence(1, PROMPT)
    bench.show(proposer, other, start=24)
    assert proposer.propose([DraftRequest(other, 3)])[0].tokens == bench.greedy(PROMPT, 3)


def test_a_beginning_that_is_not_known_is_done_without(bench: Bench) -> None:
    proposer = bench.proposer()
    one = sequence(0, PROMPT)
    bench.show(proposer, one, start=16)
    assert proposer.propose([DraftRequest(one, 4)])[0].tokens == bench.greedy(PROMPT, 4, start=16)
    proposer.release(one)
    assert proposer.pool.num_used == 0
    again = sequence(1, PROMPT)  # and nothing of it is taken for the real beginning
    bench.show(proposer, again)
    assert proposer.propose([DraftRequest(again, 4)])[0].tokens == bench.greedy(PROMPT, 4)


def test_sent_back_and_shown_again(bench: Bench) -> None:
    """A preempted sequence is computed anew, from 0 or from further on than it had come."""
    proposer = bench.proposer()
    one, other = sequence(0, PROMPT), sequence(1, PROMPT)
    proposer.observe([Observation(one, 0, bench.features(PROMPT[:10]), 0, 10)])
    bench.show(proposer, one, start=0)
    assert proposer.propose([DraftRequest(one, 4)])[0].tokens == bench.greedy(PROMPT, 4)
    proposer.observe([Observation(other, 0, bench.features(PROMPT[:10]), 0, 10)])
    bench.show(proposer, other, start=24)  # others had published that far meanwhile
    assert proposer.propose([DraftRequest(other, 4)])[0].tokens == bench.greedy(PROMPT, 4)
    proposer.pool.check(proposer.tables)


def test_a_full_pool_means_shorter_drafts_and_no_harm(bench: Bench) -> None:
    proposer = bench.proposer(num_blocks=10)  # 72 entries
    texts = [sequence(number, [number + 5, *PROMPT[1:]]) for number in range(3)]
    for one in texts:
        bench.show(proposer, one)
    drafts = proposer.propose([DraftRequest(one, 8) for one in texts])
    # Five blocks for the first, four for the second: 32 entries, which is two drafts that are
    # read and one that is not.
    assert [len(draft.tokens) for draft in drafts] == [8, 3, 0]
    assert drafts[1].tokens == bench.greedy(texts[1].tokens, 3)
    proposer.pool.check(proposer.tables)
    proposer.release(texts[0])
    assert proposer.propose([DraftRequest(texts[2], 2)])[0].tokens == bench.greedy(
        texts[2].tokens, 2
    )
    for one in texts:
        proposer.release(one)
    assert proposer.pool.num_used == 0


def test_the_noise_is_the_targets(bench: Bench) -> None:
    """Hot drafts: within the draft vocabulary, or token by token when a bias looks at them."""
    one, other = (
        sequence(5, PROMPT, SamplingParams(temperature=1.5, seed=5, logit_bias=bias))
        for bias in ({}, {3: 0.0})
    )
    found = []
    for each in (one, other):
        proposer = bench.proposer()
        bench.show(proposer, each)
        found.append(proposer.propose([DraftRequest(each, 8)])[0].tokens)
    assert found[0] == found[1]
    assert found[0] != bench.greedy(PROMPT, 8)


# ---------------------------------------------------------------- in an engine


def engine_of(bench: Bench, head: Path | None = None, **options: Any) -> Engine:
    settings = {"k": 4, **options.pop("settings", {})}
    speculation = Speculation(method="eagle", draft=str(head or bench.folder), **settings)
    return load_engine(str(bench.target), speculation, kv_cache_bytes=4 << 20, **options)


def head_of(engine: Engine) -> EagleProposer:
    assert engine.drafting is not None
    proposer = engine.drafting.proposers["eagle"]
    assert isinstance(proposer, EagleProposer)
    return proposer


FEW = dict.fromkeys(range(40, 48), 9.0)


def texts_of(engine: Engine, prompts: list[list[int]], **params: Any) -> list[list[int]]:
    wanted = SamplingParams(max_tokens=40, ignore_eos=True, logit_bias=FEW, **params)
    return [generation.tokens for generation in engine.generate(prompts, wanted)]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("quantization", ["none", "int8", "int4"])
def test_the_text_is_the_targets(
    bench: Bench, quantization: str, layout: str, tmp_path: Path
) -> None:
    head = tiny_head(tmp_path / "head", bench.target, layout=layout, own_embedding=True)
    engine = engine_of(bench, head, settings={"quantization": quantization})
    prompts = [PROMPT, PROMPT[:9]]
    without = load_engine(str(bench.target), OFF, kv_cache_bytes=4 << 20)
    assert texts_of(engine, prompts) == texts_of(without, prompts)
    assert engine.acceptance.rate is not None
    assert 0.03 < engine.acceptance.rate < 1.0
    assert head_of(engine).pool.num_used == 0


def test_drafts_do_not_depend_on_what_was_found_in_the_cache(bench: Bench) -> None:
    """A second turn goes on from the first; both caches know it, and acceptance is the same."""
    rounds = []
    for reuse in (True, False):
        engine = engine_of(bench, reuse_prefixes=reuse)
        [answer] = texts_of(engine, [PROMPT])
        before = engine.acceptance.num_draft_tokens
        turns = [[*PROMPT, *answer, 60, 61, number] for number in range(70, 76)]
        texts = texts_of(engine, turns)
        hits, _ = engine.scheduler.prefix_hits
        assert (hits > 0) == reuse
        proposed = engine.acceptance.num_draft_tokens - before
        rounds.append((texts, proposed, engine.acceptance.num_accepted_tokens))
    assert rounds[0] == rounds[1]
    assert rounds[0][2] > 0


def test_a_step_without_drafts_asks_nothing_of_the_head(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even at the end of a text; when drafts are asked for again, all is made up for."""
    engine = engine_of(bench)
    head = head_of(engine)._runner.head
    fused: list[int] = []
    fuse = head.fuse
    monkeypatch.setattr(head, "fuse", lambda rows: fused.append(len(rows)) or fuse(rows))
    wanted = SamplingParams(max_tokens=40, ignore_eos=True, logit_bias=FEW)
    [without] = engine.generate([PROMPT], wanted, k=0)
    assert fused == []
    assert head_of(engine).pool.num_used == 0
    engine.forget()
    request = engine.add_request(PROMPT, wanted)
    for _ in range(12):
        engine.step(inverted=EVERYBODY)
    assert fused == []
    engine.step()
    assert fused == [len(PROMPT) + 11]
    for _ in range(9):
        engine.step()
    assert engine.acceptance.num_accepted_tokens > 0
    live = engine._lives_of(request)[0]
    assert live.generation.tokens == without.tokens[: len(live.generation.tokens)]


@pytest.mark.parametrize("rule", ["rejection", "typical"])
def test_other_rules_run(bench: Bench, rule: str) -> None:
    engine = engine_of(bench, settings={"rule": rule})
    texts = texts_of(engine, [PROMPT, PROMPT[:9]], temperature=0.8, seed=3, top_p=0.95)
    assert [len(text) for text in texts] == [40, 40]
    assert 0 < engine.acceptance.num_accepted_tokens < engine.acceptance.num_draft_tokens


def test_an_aborted_request_gives_everything_back(bench: Bench) -> None:
    engine = engine_of(bench, max_num_batched_tokens=16)
    wanted = SamplingParams(max_tokens=40, ignore_eos=True)
    ids = [engine.add_request(PROMPT, wanted), engine.add_request(PROMPT[3:], wanted)]
    for _ in range(5):
        engine.step()
    for request in ids:
        engine.abort(request)
    assert engine.pool.num_used == head_of(engine).pool.num_used == 0


def test_what_does_not_fit_is_said_before_anything_is_loaded(bench: Bench, tmp_path: Path) -> None:
    wide = tiny_model(tmp_path / "wide", "llama", hidden=96)
    speculation = Speculation(method="eagle", draft=str(bench.folder))
    with pytest.raises(PairingError, match="hidden states of 64"):
        load_engine(str(wide), speculation)
    with pytest.raises(PairingError, match="target is a model, not a head; use method draft_model"):
        engine_of(bench, bench.target)
    model = Speculation(method="draft_model", draft=str(bench.folder))
    with pytest.raises(PairingError, match="use method eagle"):
        load_engine(str(bench.target), model)
    with pytest.raises(CatalogError, match="no file or folder"):
        engine_of(bench, tmp_path / "nowhere")
