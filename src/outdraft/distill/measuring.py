"""The evaluation stage: the real engine with the draft, on prompts nobody trained on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from outdraft.distill.acceptance import summary
from outdraft.distill.clock import Tell
from outdraft.engine.assemble import load_engine
from outdraft.engine.engine import Engine
from outdraft.engine.sequence import Acceptance, SamplingParams
from outdraft.speculation import Speculation
from outdraft.workload.prompt import Prompt

METHODS = {"model": "draft_model", "head": "eagle"}


def measure_draft(
    target: str,
    draft: Path,
    kind: str,
    prompts: Sequence[Prompt],
    *,
    k: int,
    temperatures: Sequence[float],
    max_tokens: int,
    device: str,
    threads: int | None,
    tell: Tell,
) -> dict[str, Any]:
    """Acceptance by temperature: of all prompts, of each category, of those judged by."""
    tell("evaluate", 0.0, "loading")
    engine = load_engine(
        target,
        Speculation(method=METHODS[kind], k=k, draft=str(draft)),
        device=device,
        threads=threads,
        max_num_seqs=8,
        max_model_len=None,
    )
    result: dict[str, Any] = {}
    done, total = 0, len(prompts) * len(temperatures)
    for temperature in temperatures:
        found: dict[str, Acceptance] = {}
        for prompt, counted in _each(engine, prompts, temperature, max_tokens):
            found.setdefault(prompt.category, Acceptance()).add(counted)
            done += 1
            tell("evaluate", done / total, f"temperature {temperature:g}, {prompt.id}")
        result[f"{temperature:g}"] = summary(found)
    return result


def _each(
    engine: Engine, prompts: Sequence[Prompt], temperature: float, max_tokens: int
) -> Iterator[tuple[Prompt, Acceptance]]:
    by_request: dict[str, Prompt] = {}
    for number, prompt in enumerate(prompts):
        messages = [{"role": m.role, "content": m.content} for m in prompt.messages]
        if engine.tokenizer.chat_template is None:
            tokens = engine.tokenizer.encode("\n".join(m["content"] for m in messages))
        else:
            tokens = engine.tokenizer.apply_chat(messages)
        if len(tokens) + max_tokens > engine.max_context:
            continue
        params = SamplingParams(temperature=temperature, max_tokens=max_tokens, seed=number)
        by_request[engine.add_request(tokens, params)] = prompt
    while engine.has_work:
        for update in engine.step():
            if update.generation is not None:
                yield by_request[update.request_id], update.generation.acceptance
