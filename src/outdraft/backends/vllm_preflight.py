"""Ways in which vLLM is known to disappoint under speculation, seen before the start."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from outdraft.backends.backend import Serving, Traffic
from outdraft.backends.vllm_found import Found
from outdraft.speculation import Speculation

_REJECTED = ("min_p", "logit_bias")
_MAX_NUM_SEQS = 256  # its default on a GPU
_GRAPH_TOKENS = 512  # CUDA graphs are captured for steps of up to so many tokens
_UNPROFILED_TOKENS = 1024  # 0.5 GB of float32 logits at 128,000 tokens of vocabulary


def warnings(
    serving: Serving, speculation: Speculation, traffic: Traffic, found: Found
) -> Iterator[str]:
    if serving.max_model_len and traffic.longest > serving.max_model_len:
        yield (
            f"the longest request has {traffic.longest} tokens, max_model_len is "
            f"{serving.max_model_len}: such requests are refused"
        )
    if speculation.is_off:
        return
    yield from _sampling(traffic, found)
    yield from _schedule(serving, speculation, found)
    if (
        speculation.rule == "rejection"
        and speculation.method == "eagle"
        and found.version <= (0, 28, 0)
    ):
        yield (
            f"vLLM {found.installed.version}: with sampled drafts its newer model runner shifts "
            "the output's distribution (issue 54282, mended after 0.28.0); use the rule coupled"
        )
    if not found.is_cpu:
        yield from _memory(serving, speculation, traffic, found)


def _sampling(traffic: Traffic, found: Found) -> Iterator[str]:
    for field in _REJECTED:
        if field in traffic.fields:
            yield f"requests with {field} are refused by vLLM while it speculates"
    if found.is_cpu:
        if "top_k" in traffic.fields:
            yield (
                "vLLM on a CPU dies at the first request with top_k while it speculates; "
                "send greedy requests only"
            )
        if any(each > 0 for each in traffic.temperatures):
            yield (
                "vLLM on a CPU writes wrong tokens at temperatures above 0 while it speculates "
                "(issue 55005); send greedy requests only"
            )


def _schedule(serving: Serving, speculation: Speculation, found: Found) -> Iterator[str]:
    if not speculation.schedule:
        return
    if any(k == 0 for _, _, k in speculation.schedule):
        yield (
            "K = 0 in vLLM's schedule is not off: the draft stays in memory and in step with the "
            "target (6 to 22 % slower than no speculation, issue 51575)"
        )
    if data_parallel_size(serving.extra) > 1:
        yield "vLLM leaves the schedule out with data parallelism and drafts k tokens always"
    if found.is_cpu:
        return
    if runs_on_v1(speculation, found):
        yield "with a schedule this vLLM's older model runner gives up full CUDA graphs"
    elif found.version < (0, 32) or speculation.method != "eagle":
        yield (
            "this vLLM may draft k tokens whatever the schedule says, and only verify fewer "
            "(issue 51510): less is saved than the schedule suggests"
        )


def _memory(
    serving: Serving, speculation: Speculation, traffic: Traffic, found: Found
) -> Iterator[str]:
    num_seqs = serving.max_num_seqs or _MAX_NUM_SEQS
    if runs_on_v1(speculation, found) and num_seqs * speculation.k >= _UNPROFILED_TOKENS:
        yield (
            f"vLLM's memory profile forgets draft tokens for {speculation.method}: {num_seqs} "
            f"sequences of {speculation.k} may run out of memory later; lower max_num_seqs or "
            "--gpu-memory-utilization"
        )
    in_graphs = _GRAPH_TOKENS // (1 + speculation.k)
    if min(traffic.concurrency, num_seqs) > in_graphs:
        yield (
            f"CUDA graphs cover steps of up to {_GRAPH_TOKENS} tokens: with k = {speculation.k} "
            f"batches over {in_graphs} requests leave them, while without speculation they do not"
        )


def runs_on_v1(speculation: Speculation, found: Found) -> bool:
    """Whether the older model runner serves this method (0.32 moved all but suffix)."""
    if found.version >= (0, 32):
        return speculation.method == "suffix"
    return speculation.method != "eagle"


def data_parallel_size(flags: Sequence[str]) -> int:
    for place, word in enumerate(flags):
        flag, has_value, value = word.partition("=")
        if flag in ("--data-parallel-size", "-dp"):
            number = value if has_value else "".join(flags[place + 1 : place + 2])
            return int(number) if number.isdigit() else 1
    return 1
