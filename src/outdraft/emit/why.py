"""Why a flag is there, in a line: what stands beside it in an emitted configuration."""

from __future__ import annotations

import json
from collections.abc import Mapping

NAMES: Mapping[str, str] = {
    "vllm": "vLLM",
    "sglang": "SGLang",
    "llamacpp": "llama.cpp",
    "outdraft": "outdraft",
}

_ANY: Mapping[str, str] = {
    "--host": "where it listens: 127.0.0.1 is this machine only, 0.0.0.0 every address",
    "--port": "where requests, /health and /metrics are",
    "--served-model-name": "what requests call the model",
    "--max-model-len": "tokens of a prompt and its answer; a shorter limit is KV cache for others",
    "--max-num-seqs": "sequences at a time: the larger the batch, the less speculation pays",
    "--dtype": "of the weights and the computation",
    "--quantization": "of the target's weights",
    "--tensor-parallel-size": "GPUs that share the target's weights, on each host",
    "--kv-cache-memory-bytes": "fixed, so that settings are compared with equal KV cache",
}

_ENGINES: Mapping[str, Mapping[str, str]] = {
    "vllm": {
        "--pipeline-parallel-size": "stages, one for each host: little traffic between them",
        "--distributed-executor-backend": "several hosts go through Ray",
        "--enable-per-request-metrics": "each answer tells its own times",
        "--per-request-spec-decode-metrics": "each answer tells its own acceptance, by position",
        "--enforce-eager": "no compilation and no CUDA graphs: a quick start, slower steps",
        "--speculative-config": "how to speculate",
    },
    "sglang": {
        "--model-path": "the target",
        "--max-running-requests": "said explicitly: under speculation SGLang falls back to 48",
        "--enable-metrics": "/metrics is off without it",
        "--context-length": _ANY["--max-model-len"],
        "--tp-size": "GPUs that share the target's weights, over all hosts",
        "--nnodes": "hosts of this server",
        "--node-rank": "this host: 0 is the one that answers requests",
        "--dist-init-addr": "where the hosts meet: the first one's address",
        "--speculative-algorithm": "who proposes",
        "--speculative-num-steps": "k: tokens drafted in a round",
        "--speculative-num-draft-tokens": "k + 1: the round's own token is counted too",
        "--speculative-eagle-topk": "a chain, not a tree; left out, it depends on the model",
        "--speculative-draft-model-path": "the draft",
        "--speculative-draft-model-quantization": "else the draft takes the target's",
        "--speculative-use-rejection-sampling": "min(1, p/q): accepts most, keeps the distribution",
        "--speculative-ngram-min-bfs-breadth": "with the next: a chain of k tokens, not a tree",
        "--speculative-ngram-max-bfs-breadth": "the default of 10 would make a tree",
        "--speculative-ngram-max-trie-depth": "matched and drafted tokens together",
        "--speculative-adaptive": "the draft length follows the batch size",
        "--speculative-adaptive-config": "the schedule: one length for each band of batch sizes",
    },
    "llamacpp": {
        "-m": "the target",
        "-c": "context, shared by all slots",
        "-np": "slots: requests at a time",
        "-t": "threads that generate: fewer than cores, they wait for each other",
        "-tb": "threads for prompts",
        "--alias": "what requests call the model",
        "--metrics": "/metrics is off without it",
        "--kv-unified": "slots share one pool of KV cache",
        "--split-mode": "how several GPUs share the target",
        "--spec-type": "without it a draft is loaded and never used",
        "--spec-draft-model": "the draft",
        "--model-draft": "the draft",
        "-md": "the draft",
        "--spec-draft-n-max": "k: tokens drafted in a round",
        "--spec-draft-sampling": "drafts are sampled, and kept with min(1, p/q)",
        "--spec-ngram-simple-size-n": "tokens that must match",
        "--spec-ngram-simple-size-m": "k: tokens drafted in a round",
    },
    "outdraft": {
        "--target": "the model whose text is wanted",
        "--threads": "CPU threads; two processes on the same cores slow each other down",
        "--enable-per-request-metrics": "each answer tells its own times and acceptance",
        "--speculative-config": "how to speculate",
    },
}

_KEYS: Mapping[str, str] = {
    "method": "who proposes",
    "model": "the draft",
    "draft": "the draft",
    "num_speculative_tokens": "k, the tokens drafted in a round",
    "k": "tokens drafted in a round",
    "draft_tensor_parallel_size": "a draft model needs as many GPUs as its target; a head, also 1",
    "quantization": "of the draft's weights",
    "draft_sample_method": "the draft's likeliest tokens, or sampled ones kept with min(1, p/q)",
    "prompt_lookup_min": "shortest match that counts",
    "prompt_lookup_max": "longest match looked for",
    "num_speculative_tokens_per_batch_size": "[from, to, k] by running requests; k = 0 is not off",
    "schedule": "[from, to, k] by running requests",
    "rule": "how drafts are verified",
}


def why(engine: str, words: tuple[str, ...]) -> str:
    """The reason of a flag; empty for one that nobody here set."""
    flag = words[0].partition("=")[0]
    return _ENGINES[engine].get(flag, _ANY.get(flag, ""))


def why_keys(value: str) -> list[tuple[str, str]]:
    """The keys of a --speculative-config, each with its value and the reason."""
    config = json.loads(value)
    return [(f"{key} {json.dumps(config[key])}", _KEYS.get(key, "")) for key in config]
