"""What a /metrics page says, under the names of each engine."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from outdraft.acceptance import Acceptance
from outdraft.observe.names import GAUGES

# Names of backends, and the first part of their metrics' names. Our own server has vLLM's metrics
# beside its own, so it is looked for first.
ENGINE_PREFIXES = ("outdraft", "llamacpp", "sglang", "vllm")


@dataclass(frozen=True, slots=True)
class Written:
    """What a server wrote, to whomever. Its acceptance counters are over the same requests."""

    num_tokens: int
    num_texts: int

    @classmethod
    def total(cls, parts: Iterable[Self]) -> Self:
        every = list(parts)
        num_texts = sum(each.num_texts for each in every)
        return cls(sum(each.num_tokens for each in every), num_texts)


def engine_of(page: Mapping[str, float]) -> str | None:
    """The engine whose metrics these are, by its backend's name."""
    prefixes = {key.partition(":")[0] for key in page}
    return next((engine for engine in ENGINE_PREFIXES if engine in prefixes), None)


def read_acceptance(page: Mapping[str, float]) -> Acceptance | None:
    """What was drafted and accepted; None where the page has no such counters."""
    engine = engine_of(page)
    if engine == "sglang":
        return _sglang_acceptance(page)
    prefix = "llamacpp" if engine == "llamacpp" else "vllm"  # our server has vLLM's names
    name = f"{prefix}:spec_decode_num"
    proposed = page.get(f"{name}_draft_tokens_total")
    if proposed is None:
        return None
    return Acceptance(
        num_drafts=int(page.get(f"{name}_drafts_total", 0)),
        num_draft_tokens=int(proposed),
        num_accepted_tokens=int(page.get(f"{name}_accepted_tokens_total", 0)),
        accepted_per_position=_by_position(page, f"{name}_accepted_tokens_per_pos_total"),
        drafted_per_position=_by_position(page, "outdraft:draft_tokens_per_pos_total")
        or _by_position(page, f"{name}_draft_tokens_per_pos_total"),
    )


def _sglang_acceptance(page: Mapping[str, float]) -> Acceptance | None:
    """SGLang counts rounds; the other numbers follow from them.

    Every round gives one token beside the accepted ones, every request one without a round.
    Drafted tokens are rounds times the length now configured: too many where a schedule
    shortened drafts. Requests count when they have ended.
    """
    per_round = page.get("sglang:spec_num_draft_tokens", 0.0)
    rounds = page.get("sglang:spec_verify_calls_total")
    if rounds is None and per_round <= 0:
        return None
    rounds = rounds or 0.0
    tokens = page.get("sglang:generation_tokens_total", 0.0)
    requests = page.get("sglang:num_requests_total", 0.0)
    return Acceptance(
        num_drafts=int(rounds),
        num_draft_tokens=int(rounds * max(0.0, per_round - 1)),
        num_accepted_tokens=int(max(0.0, tokens - requests - rounds)),
    )


def read_written(page: Mapping[str, float], num_sent: int | None = None) -> Written | None:
    """None where the page does not tell both. `num_sent`: requests that it was sent, for an engine
    that counts tokens alone."""
    engine = engine_of(page)
    if engine == "llamacpp":  # abandoned answers included
        tokens = page.get("llamacpp:tokens_predicted_total")
        return None if tokens is None or num_sent is None else Written(int(tokens), num_sent)
    prefix = "sglang" if engine == "sglang" else "vllm"
    tokens = page.get(f"{prefix}:generation_tokens_total")
    texts = page.get(f"{prefix}:num_requests_total")
    if prefix == "vllm":
        ended = [
            value
            for key, value in page.items()
            if key.partition("{")[0] == "vllm:request_success_total"
        ]
        # Better, where it is there: abandoned answers have first tokens, and may not end.
        texts = page.get("vllm:time_to_first_token_seconds_count", sum(ended) if ended else None)
    return None if tokens is None or texts is None else Written(int(tokens), int(texts))


def read_step_seconds(page: Mapping[str, float]) -> dict[int, float]:
    """Tokens in a step → its seconds, where a server (ours) measured them when it started."""
    return _by_number(page, "outdraft:step_seconds", "tokens")


def read_gauges(page: Mapping[str, float]) -> dict[str, float]:
    """KV cache usage, running and waiting requests, as far as the page has them."""
    return {gauge: page[name] for name, gauge in GAUGES.items() if name in page}


def read_kv_size(page: Mapping[str, float]) -> int | None:
    """How large the KV cache is, in the engine's own unit: blocks of vLLM, tokens of SGLang. None
    where the page does not tell."""
    blocks = _by_number(page, "vllm:cache_config_info", "num_gpu_blocks")  # → how many engines
    if blocks:
        return int(sum(size * count for size, count in blocks.items()))
    tokens = page.get("sglang:max_total_num_tokens")
    return None if tokens is None else int(tokens)


def _by_position(page: Mapping[str, float], name: str) -> list[int]:
    counts = _by_number(page, name, "position")
    return [int(counts[position]) for position in range(len(counts)) if position in counts]


def _by_number(page: Mapping[str, float], name: str, label: str) -> dict[int, float]:
    """The samples of `name` by the number that is the value of their only label."""
    start = f'{name}{{{label}="'
    found = ((key[len(start) : -2], value) for key, value in page.items() if key.startswith(start))
    return {int(number): value for number, value in found if number.isdecimal()}
