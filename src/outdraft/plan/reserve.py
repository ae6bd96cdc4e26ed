"""Estimates of what an engine takes beside weights and KV cache; exact sizes are in `sizes.py`.

Fitted to logs of vLLM on 80 GB cards: 8 billion parameters at 8192 batched tokens take 1.3 GB of
activations and 0.5 GB of CUDA graphs.
"""

from outdraft.modelspec import AnySpec, HeadSpec, ModelSpec

# The driver's context, kernels, allocator slack; and what nvidia-smi shows but no program gets:
# 0.4 GB of an RTX 4090, 0.6 GB of an H200.
RUNTIME_BYTES = 1_000_000_000
COMMUNICATION_BYTES = 1_000_000_000  # buffers of the collectives, with more than one device
GRAPH_BYTES = 256 << 10  # per layer and captured batch size
MAX_CAPTURED_TOKENS = 512
_ACTIVATION_BYTES, _LOGIT_BYTES = 2, 4  # of one value: bf16, float32

ASSUMPTIONS = (
    "a GPU's memory is what nvidia-smi or rocm-smi shows of such a card; --memory takes any other",
    "embeddings, output head, norms, biases and routers stay in bf16 under fp8, int8 and int4; "
    "fp8 and int8 have a float32 scale per row, int4 a 16-bit scale and a 4-bit zero point per "
    "128 values",
    "a tied embedding is counted once; EAGLE heads without an embedding share the target's",
    "tensor parallelism divides matrices, experts and vocabulary evenly; norms, routers and "
    "latent KV vectors are on every device, and KV heads are repeated when devices outnumber them",
    "activations are an estimate: bf16 values of one layer at --max-num-batched-tokens, and two "
    "float32 copies of the logits of every sampled row",
    f"CUDA graphs are an estimate: {GRAPH_BYTES >> 10} KiB per layer and captured batch size, up "
    f"to {MAX_CAPTURED_TOKENS} tokens; --enforce-eager has none",
    f"runtime is an estimate: {RUNTIME_BYTES / 1e9:g} GB per device, "
    f"{COMMUNICATION_BYTES / 1e9:g} GB more with several",
)


def activation_bytes(model: AnySpec, *, num_tokens: int, num_rows: int, ranks: int = 1) -> int:
    """Bytes on one device: the widest layer at `num_tokens`, and the logits of `num_rows`."""
    experts = model.experts if isinstance(model, ModelSpec) else None
    if experts is None:
        width = 3 * model.intermediate_size // ranks
    else:
        per_expert = 3 * experts.intermediate_size // ranks + model.hidden_size
        width = (experts.per_token + experts.shared) * per_expert
    layer = num_tokens * (width + 4 * model.hidden_size) * _ACTIVATION_BYTES
    return layer + 2 * logit_bytes(model, min(num_rows, num_tokens))


def logit_bytes(model: AnySpec, num_rows: int) -> int:
    """Logits are gathered: every device holds whole rows."""
    columns = model.draft_vocab_size if isinstance(model, HeadSpec) else model.vocab_size
    return num_rows * columns * _LOGIT_BYTES


def graph_bytes(model: AnySpec, *, max_num_seqs: int, k: int) -> int:
    return model.num_layers * num_captured_sizes(max_num_seqs, k) * GRAPH_BYTES


def num_captured_sizes(max_num_seqs: int, k: int) -> int:
    """1, 2, 4, then every 8th up to 256 and every 16th beyond, as vLLM captures."""
    most = min(2 * max_num_seqs * (1 + k), MAX_CAPTURED_TOKENS)
    sizes = {1, 2, 4, *range(8, 256, 8), *range(256, MAX_CAPTURED_TOKENS + 1, 16)}
    return sum(size <= most for size in sizes)
