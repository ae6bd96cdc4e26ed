"""What every engine calls the things that a reading has.

vLLM's names as in 0.10 and later, SGLang's as in 0.5, llama.cpp's as of late 2026. llama.cpp counts
tokens and rounds of a request when it is done, but not requests, and has no histograms of times;
SGLang counts tokens and rounds then.
"""

from collections.abc import Mapping

# Counters that every engine has under a name of its own. Those that it lacks are not there.
# decode_*: seconds of streams between their first and last token, and the tokens in them.
# num_steps: decoding steps of texts after their first tokens, with and without a draft.
COUNTERS: Mapping[str, Mapping[str, str]] = {
    "vllm": {
        "num_tokens": "vllm:generation_tokens_total",
        "num_prompt_tokens": "vllm:prompt_tokens_total",
        "num_requests": "vllm:e2e_request_latency_seconds_count",
        "num_first_tokens": "vllm:time_to_first_token_seconds_count",  # abandoned texts have some
        "num_steps": "vllm:inter_token_latency_seconds_count",
        "num_preemptions": "vllm:num_preemptions_total",
        "prefix_queries": "vllm:prefix_cache_queries_total",
        "prefix_hits": "vllm:prefix_cache_hits_total",
        "decode_seconds": "vllm:request_decode_time_seconds_sum",
        "decode_tokens": "vllm:request_generation_tokens_sum",  # less one for each request
    },
    "sglang": {
        "num_tokens": "sglang:generation_tokens_total",
        "num_prompt_tokens": "sglang:prompt_tokens_total",
        "num_requests": "sglang:num_requests_total",
        "num_preemptions": "sglang:num_retracted_requests_total",
        "prefix_queries": "sglang:prompt_tokens_total",
        "prefix_hits": "sglang:cached_tokens_total",
        # Its interval is shared by the tokens that came together, so both count tokens.
        "decode_seconds": "sglang:inter_token_latency_seconds_sum",
        "decode_tokens": "sglang:inter_token_latency_seconds_count",
    },
    "llamacpp": {
        "num_tokens": "llamacpp:tokens_predicted_total",
        "num_prompt_tokens": "llamacpp:prompt_tokens_total",
        "prefix_queries": "llamacpp:prompt_tokens_total",  # and those of prefix_hits
        "prefix_hits": "llamacpp:prompt_tokens_cached_total",
        "decode_seconds": "llamacpp:tokens_predicted_seconds_total",
        # First tokens are among them and are not counted by themselves.
        "decode_tokens": "llamacpp:tokens_predicted_total",
    },
}
HISTOGRAMS: Mapping[str, Mapping[str, str]] = {
    "vllm": {
        "ttft": "vllm:time_to_first_token_seconds",
        "tpot": "vllm:request_time_per_output_token_seconds",
        "e2e": "vllm:e2e_request_latency_seconds",
    },
    "sglang": {
        "ttft": "sglang:time_to_first_token_seconds",
        "tpot": "sglang:inter_token_latency_seconds",
        "e2e": "sglang:e2e_request_latency_seconds",
    },
    "llamacpp": {},
}
GAUGES: Mapping[str, str] = {
    "vllm:kv_cache_usage_perc": "kv_cache_usage",  # share of the KV cache in use, 0 to 1
    "sglang:token_usage": "kv_cache_usage",
    "llamacpp:kv_cache_usage_ratio": "kv_cache_usage",  # only in versions before 2025-06
    "vllm:num_requests_running": "running_requests",
    "sglang:num_running_reqs": "running_requests",
    "llamacpp:requests_processing": "running_requests",
    "vllm:num_requests_waiting": "waiting_requests",
    "sglang:num_queue_reqs": "waiting_requests",
    "llamacpp:requests_deferred": "waiting_requests",
    "sglang:cache_hit_rate": "prefix_hit_rate",  # of the last batch of prompts
}
ONE_TOKEN = "vllm:request_generation_tokens_bucket"
START_TIME = "process_start_time_seconds"
METHOD = "outdraft:speculation_method"
REQUEST_ACCEPTANCE = "outdraft:request_acceptance_rate"
SLICE_TOKENS = "outdraft:decode_tokens_total"
SLICE_SECONDS = "outdraft:decode_seconds_total"
BAND_TOKENS = "outdraft:decode_tokens_by_temperature_total"
BAND_SECONDS = "outdraft:decode_seconds_by_temperature_total"
# A page has them once for every engine in the server. They cannot be added up: the highest counts.
NOT_ADDED = frozenset(
    {
        "vllm:kv_cache_usage_perc",
        "sglang:token_usage",
        "sglang:cache_hit_rate",
        "sglang:spec_num_draft_tokens",
        "llamacpp:kv_cache_usage_ratio",
        START_TIME,
        METHOD,
    }
)
_ACCEPTANCE = (
    "drafts_total",
    "draft_tokens_total",
    "accepted_tokens_total",
    "accepted_tokens_per_pos_total",
    "draft_tokens_per_pos_total",
)
_OURS = (
    "step_seconds",
    "rounds_total",
    "rounds_without_draft_total",
    "draft_tokens_per_pos_total",
    "speculation_spent_seconds_total",
    "speculation_plain_seconds_total",
    "speculation_net_benefit",
    "speculation_stopped",
)


def _parts(histogram: str) -> tuple[str, ...]:
    return f"{histogram}_bucket", f"{histogram}_sum", f"{histogram}_count"


# All names that a reading uses: the rest of a page of 2,000 lines need not be parsed.
NAMES = frozenset(
    {
        *GAUGES,
        START_TIME,
        METHOD,
        SLICE_TOKENS,
        SLICE_SECONDS,
        BAND_TOKENS,
        BAND_SECONDS,
        "vllm:request_generation_tokens_count",
        ONE_TOKEN,
        "sglang:spec_verify_calls_total",
        "sglang:spec_num_draft_tokens",
        *(f"outdraft:{name}" for name in _OURS),
        *_parts(REQUEST_ACCEPTANCE),
    }
    | {name for engine in COUNTERS.values() for name in engine.values()}
    | {part for engine in HISTOGRAMS.values() for name in engine.values() for part in _parts(name)}
    | {
        f"{engine}:spec_decode_num_{name}"
        for engine in ("vllm", "llamacpp")
        for name in _ACCEPTANCE
    }
)
