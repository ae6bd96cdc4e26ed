"""From a model's name to something that runs: files → spec → weights → runner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from outdraft.catalog import ModelFiles
from outdraft.engine.kv_cache import BlockPool, KVCache
from outdraft.engine.models.decoder import Decoder, load_decoder
from outdraft.engine.models.weights import open_weights
from outdraft.engine.runner import Runner
from outdraft.errors import OptionError, unknown_choice
from outdraft.modelspec import ModelSpec, read_modelspec

BLOCK_SIZE = 16  # tokens; prefixes are shared in multiples of it
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class LoadedModel:
    spec: ModelSpec
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
    max_context: int | None,
    reuse_prefixes: bool,
    on_layer: Callable[[int, int], None],
    taps: Sequence[int] = (),
) -> LoadedModel:
    """`taps`: layers whose hidden states a step shall hand out, see Decoder.forward."""
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
    model = with_cache(
        decoder,
        kv_cache_bytes,
        max_context or spec.max_context,
        reuse_prefixes=reuse_prefixes,
        taps=taps,
    )
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
        cache = KVCache(
            spec.num_layers,
            num_blocks,
            BLOCK_SIZE,
            spec.num_kv_heads,
            spec.head_dim,
            decoder.dtype,
            decoder.device,
        )
        pool = BlockPool(num_blocks, BLOCK_SIZE, reuse=reuse_prefixes)
    except (RuntimeError, MemoryError) as error:  # torch's and Python's out of memory
        raise OptionError(
            f"no memory for a KV cache of {kv_cache_bytes} bytes on {decoder.device}; "
            "give it less (kv_cache_memory_bytes)"
        ) from error
    # Block 0 is scratch. A lone sequence must always fit, or it could never finish.
    capacity = (num_blocks - 1) * BLOCK_SIZE
    return LoadedModel(
        spec,
        Runner(decoder, cache, taps),
        pool,
        min(max_context, capacity),
        capacity < max_context,
    )


def resolve_dtype(dtype: str, device: torch.device) -> torch.dtype:
    """auto: float32 on a CPU, where packed weights too are faster with it (only their own
    kernels go through bfloat16); bfloat16 on a GPU."""
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
