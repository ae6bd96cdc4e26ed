"""How much of its drafts a running engine accepts, by its own counters, beside our engine."""

from __future__ import annotations

from outdraft.backends.backend import Backend
from outdraft.backends.process import EngineProcess
from outdraft.engine.assemble import load_engine
from outdraft.engine.sequence import SamplingParams
from outdraft.observe import page_difference, read_acceptance
from outdraft.speculation import Speculation
from outdraft.testing.backend_contract import chat, page_of

PROMPTS = (
    "Write a short paragraph about the sea.",
    "Write a Python function that returns the sum of a list.",
    "Name three uses of a paper clip.",
    "Why is the sky blue?",
)
MAX_TOKENS = 48
NEAR = 0.15  # of the length: engines round otherwise, and a text may take another turn


def accepted(backend: Backend, engine: EngineProcess) -> float:
    """Acceptance length over a few greedy answers."""
    before = page_of(engine)
    for prompt in PROMPTS:
        chat(engine, prompt, max_tokens=MAX_TOKENS)
    counts = read_acceptance(page_difference(page_of(engine), before))
    assert counts is not None
    assert counts.num_drafts > 0
    rate = counts.num_accepted_tokens / counts.num_draft_tokens
    length = 1 + counts.num_accepted_tokens / counts.num_drafts
    print(f"{backend.name}: acceptance rate {rate:.2f}, length {length:.2f}")
    return length


def accepted_by_ours(speculation: Speculation) -> float:
    """The same with our engine, on the same target."""
    engine = load_engine("smollm2-135m", speculation, kv_cache_bytes=64 << 20)
    chats = [engine.tokenizer.apply_chat([{"role": "user", "content": each}]) for each in PROMPTS]
    engine.generate(chats, SamplingParams(max_tokens=MAX_TOKENS))
    assert engine.acceptance.length is not None
    return engine.acceptance.length
