"""Loads a model: files → spec → weights → runner and KV cache."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from outdraft.catalog import ModelFiles
from outdraft.engine.kv_cache import BlockPool, KVCache
from outdraft.engine.models.decoder import Decoder, load_decoder
from outdraft.engine.models.weights import open_weights
from outdraft.engine.runners.compiled import CompiledRunner, can_compile
from outdraft.engine.runners.eager import EagerRunner
from outdraft.engine.runners.runner import Runner
from outdraft.errors import OptionError, unknown_choice
from outdraft.modelspec import ModelSpec, read_modelspec

BLOCK_SIZE = 16  # tokens; prefixes are shared in multiples of it
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class LoadedModel:
    spec: ModelSpec
    decoder: Decoder
    runner: Runner
    pool: BlockPool
    max_context: int  # tokens a sequence may have: the model's limit, or the cache's
    is_cache_limited: bool  # whether it is the cache's


def load_model(
    files: ModelFiles,
    *,
    dtype: str,
    device: str,
    quantization: str,
    kv_cache_bytes: int,
    reuse_prefixes: bool,
    max_context: int | None = None,
    on_layer: Callable[[int, int], None] = lambda done, total: None,
    taps: Sequence[int] = (),
) -> LoadedModel:
    """`taps`: layers whose inputs a run returns as features, see Decoder.forward."""
    where = resolve_device(device)
    spec = read_modelspec(files.path)
    if max_context is not None and max_context > spec.max_context:
        raise OptionError(
            f"max_model_len {max_context} is over the {spec.max_context} tokens "
            f"that {files.name} was made for"
        )
    weights = open_weights(files.path, num_heads=spec.num_heads, num_kv_heads=spec.num_kv_heads)
    decoder = load_decoder(
        spec,
        weights,
        dtype=resolve_dtype(dtype, where),
        device=where,
        quantization=quantization,
        on_layer=on_layer,
    )
    limit = max_context or spec.max_context
    model = with_cache(decoder, kv_cache_bytes, limit, reuse_prefixes=reuse_prefixes, taps=taps)
    if max_context is not None and model.is_cache_limited:
        raise OptionError(
            f"max_model_len {max_context} does not fit a KV cache of {kv_cache_bytes} bytes, which "
            f"holds {model.max_context} tokens; raise kv_cache_memory_bytes or lower max_model_len"
        )
    return model


def with_cache(
    decoder: Decoder,
    kv_cache_bytes: int,
    max_context: int,
    *,
    reuse_prefixes: bool,
    taps: Sequence[int] = (),
) -> LoadedModel:
    spec = decoder.spec
    per_token = spec.kv_bytes_per_token(decoder.dtype.itemsize)
    num_blocks = kv_cache_bytes // (per_token * BLOCK_SIZE)
    if num_blocks < 2:
        raise OptionError(
            f"kv_cache_memory_bytes {kv_cache_bytes} holds {num_blocks} blocks of {BLOCK_SIZE} "
            f"tokens; give at least {2 * per_token * BLOCK_SIZE}"
        )
    try:
        shape = (num_blocks, BLOCK_SIZE, spec.num_kv_heads, spec.head_dim)
        cache = KVCache(spec.num_layers, *shape, decoder.dtype, decoder.device)
        pool = BlockPool(num_blocks, BLOCK_SIZE, reuse=reuse_prefixes)
    except (RuntimeError, MemoryError, OSError, OverflowError) as error:  # out of memory
        raise OptionError(
            f"no memory for a KV cache of {kv_cache_bytes} bytes on {decoder.device}; "
            "give it less (kv_cache_memory_bytes)"
        ) from error
    # Block 0 is scratch. A lone sequence must always fit, or it could never finish.
    capacity = (num_blocks - 1) * BLOCK_SIZE
    runner: Runner = (CompiledRunner if can_compile(decoder) else EagerRunner)(decoder, cache, taps)
    limit = min(max_context, capacity)
    return LoadedModel(spec, decoder, runner, pool, limit, capacity < max_context)


def resolve_dtype(dtype: str, device: torch.device) -> torch.dtype:
    """auto: bfloat16 on a GPU, float32 on a CPU. There it is faster with packed weights too: only
    their own kernels use bfloat16."""
    if dtype == "auto":
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    if dtype not in DTYPES:
        raise unknown_choice("dtype", dtype, ("auto", *DTYPES))
    return DTYPES[dtype]


def resolve_device(name: str) -> torch.device:
    try:
        device = torch.device(name)
    except RuntimeError:
        raise OptionError(f"unknown device {name!r}; valid: cpu, cuda, cuda:N") from None
    if device.type not in ("cpu", "cuda"):
        raise OptionError(f"device {name!r} is not supported; valid: cpu, cuda, cuda:N")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise OptionError(
            f"device {name!r} is not there: torch sees {torch.cuda.device_count()} CUDA devices; "
            "use cpu"
        )
    return device
