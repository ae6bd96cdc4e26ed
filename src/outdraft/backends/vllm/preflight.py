"""Ways in which vLLM is known to disappoint under speculation, seen before the start."""

from collections.abc import Iterator

from outdraft.backends.backend import Serving, Traffic
from outdraft.backends.flags import user_flags
from outdraft.backends.installation import Installation
from outdraft.speculation import Speculation

_ON_V2 = ("eagle", "mtp")  # methods that the newer model runner has had from the beginning
_REJECTED = ("min_p", "logit_bias")
LEAST_DEFAULT_SLOTS = 256  # by version and card it is more
_MOST_DEFAULT_SLOTS = 1024  # from 70 GiB on, A100s excepted
_GRAPH_TOKENS = 512  # CUDA graphs are captured for steps of up to so many tokens
_UNPROFILED_TOKENS = 1024  # 0.5 GB of float32 logits at 128,000 tokens of vocabulary


def vllm_warnings(
    serving: Serving, speculation: Speculation, traffic: Traffic, installation: Installation
) -> Iterator[str]:
    if speculation.is_off:
        return
    method, k, version = speculation.method, speculation.k, installation.numbers
    is_cpu, is_v1 = installation.is_cpu, _runs_on_v1(speculation, installation)
    for field in _REJECTED:
        if field in traffic.fields:
            yield f"requests with {field} are refused by vLLM while it speculates"
    if is_cpu and "top_k" in traffic.fields:
        yield (
            "vLLM on a CPU dies at the first request with top_k while it speculates; send greedy "
            "requests only"
        )
    if is_cpu and any(each > 0 for each in traffic.temperatures):
        yield (
            "vLLM on a CPU writes wrong tokens at temperatures above 0 while it speculates "
            "(issue 55005); send greedy requests only"
        )
    if speculation.schedule:
        yield from _schedule_warnings(serving, speculation, installation)
    if speculation.rule == "rejection" and method in _ON_V2 and version <= (0, 28, 0):
        yield (
            f"vLLM {installation.version}: with sampled drafts its newer model runner shifts "
            "the output's distribution (issue 54282, mended after 0.28.0); use the rule coupled"
        )
    slots = _slots(serving)
    if not is_cpu and is_v1 and (slots or _MOST_DEFAULT_SLOTS) * k >= _UNPROFILED_TOKENS:
        many = f"{slots} at a time" if slots else "as many as it runs by default"
        if not slots and LEAST_DEFAULT_SLOTS * k < _UNPROFILED_TOKENS:
            default = "its default on many cards from 70 GiB on"
            many = f"if {_MOST_DEFAULT_SLOTS:,} run at a time ({default})"
        yield (
            f"vLLM's memory profile forgets draft tokens for {method}: sequences of {k}, {many}, "
            "may run out of memory later; lower max_num_seqs or --gpu-memory-utilization"
        )
    in_graphs = _GRAPH_TOKENS // (1 + k)
    if not is_cpu and min(traffic.concurrency, slots or traffic.concurrency) > in_graphs:
        yield (
            f"CUDA graphs cover steps of up to {_GRAPH_TOKENS} tokens: with k = {k} batches over "
            f"{in_graphs} requests leave them, while without speculation they do not"
        )


def _slots(serving: Serving) -> int | None:
    """Sequences at a time; None where nobody says: vLLM decides by the card's memory and name."""
    slots = serving.max_num_seqs
    for flag in user_flags(serving.extra):  # the last one counts
        if flag.name in ("--max-num-seqs", "--max_num_seqs") and "".join(flag.values).isdecimal():
            slots = int(flag.values[0])
    return slots


def _schedule_warnings(
    serving: Serving, speculation: Speculation, installation: Installation
) -> Iterator[str]:
    if any(k == 0 for _, _, k in speculation.schedule):
        yield (
            "K = 0 in vLLM's schedule is not off: the draft stays in memory and in step with the "
            "target (6 to 22 % slower than no speculation, issue 51575)"
        )
    copies = [flag.values for flag in user_flags(serving.extra)
              if flag.name in ("--data-parallel-size", "-dp")]  # fmt: skip
    if copies and copies[0] != ("1",):
        yield "vLLM leaves the schedule out with data parallelism and drafts k tokens always"
    if installation.is_cpu:
        return
    if _runs_on_v1(speculation, installation):
        yield "with a schedule this vLLM's older model runner gives up full CUDA graphs"
    elif installation.numbers < (0, 32) or speculation.method != "eagle":
        yield (
            "this vLLM may draft k tokens whatever the schedule says, and only verify fewer "
            "(issue 51510): less is saved than the schedule suggests"
        )


def _runs_on_v1(speculation: Speculation, installation: Installation) -> bool:
    """Whether the older model runner serves this method (0.32 moved all but two)."""
    if installation.numbers >= (0, 32):
        return speculation.method in ("suffix", "medusa")
    return speculation.method not in _ON_V2
