"""Puts an engine together from settings: the one place of the engine that sees them all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from outdraft.catalog import ModelFiles, Progress, resolve, silent
from outdraft.engine.engine import Engine
from outdraft.engine.kv_cache import BlockPool, KVCache
from outdraft.engine.loading import (
    BLOCK_SIZE,
    LoadedModel,
    load_model,
    resolve_device,
    resolve_dtype,
)
from outdraft.engine.models.head import load_head
from outdraft.engine.models.weights import open_weights
from outdraft.engine.proposers.draft_model import DraftModelProposer
from outdraft.engine.proposers.eagle import EagleProposer
from outdraft.engine.proposers.ngram import NgramProposer
from outdraft.engine.proposers.proposer import Proposer
from outdraft.engine.proposers.suffix import SuffixProposer
from outdraft.engine.tokenizer import Tokenizer, first_difference, load_tokenizer
from outdraft.errors import OptionError, PairingError
from outdraft.modelspec import read_modelspec
from outdraft.modelspec.head import HeadSpec, check_head, is_head, read_head
from outdraft.speculation import OFF, WITH_DRAFT, Speculation

_CPU_KV_CACHE_BYTES = 1 << 30
_GPU_KV_CACHE_SHARE = 0.6  # of what is free before the target is loaded
_GPU_KV_CACHE_SHARE_WITH_DRAFT = 0.3


def load_engine(
    target: str = "smollm2-135m",
    speculation: Speculation = OFF,
    *,
    dtype: str = "auto",
    quantization: str = "none",
    device: str = "cpu",
    threads: int | None = None,
    max_num_seqs: int = 16,
    max_num_batched_tokens: int = 512,
    max_model_len: int | None = None,
    kv_cache_bytes: int | None = None,
    reuse_prefixes: bool = True,
    progress: Progress | None = silent,
    on_layer: Callable[[int, int], None] = lambda done, total: None,
) -> Engine:
    """Loads a target (and a draft, if the speculation names one) and returns an engine.

    target: a catalog name, a hub id, a folder of safetensors or a .gguf file.
    progress: told of downloads; None draws a bar on stderr.
    """
    _check_positive("max_num_seqs", max_num_seqs)
    _check_positive("max_num_batched_tokens", max_num_batched_tokens)
    _check_positive("max_model_len", max_model_len)
    _check_positive("kv_cache_memory_bytes", kv_cache_bytes)
    _check_positive("threads", threads)
    resolve_device(device)
    if threads is not None:
        torch.set_num_threads(threads)
    if speculation.draft_tensor_parallel_size not in (None, 1):
        raise OptionError(
            f"draft_tensor_parallel_size is {speculation.draft_tensor_parallel_size}; this engine "
            "runs a draft on one device"
        )
    files = resolve(target, progress=progress)
    tokenizer = load_tokenizer(files.path)
    draft_files, head = None, None
    if speculation.method in WITH_DRAFT and speculation.draft is not None:
        draft_files = resolve(speculation.draft, progress=progress)
        # Before anything heavy is loaded: most pairs that cannot work show it here.
        if speculation.method == "eagle":
            head = _read_head(files, draft_files)
        else:
            _check_pairing(files, tokenizer, draft_files)
    model = load_model(
        files,
        dtype=dtype,
        device=device,
        quantization=quantization,
        kv_cache_bytes=kv_cache_bytes or _default_kv_cache_bytes(device, draft_files),
        max_context=max_model_len,
        reuse_prefixes=reuse_prefixes,
        on_layer=on_layer,
        taps=head.taps if head else (),
    )
    if head is not None:
        proposer: Proposer | None = _make_eagle(speculation, model, head, reuse_prefixes)
    else:
        proposer = _make_proposer(speculation, model, draft_files, dtype, device, reuse_prefixes)
    return Engine(
        model,
        tokenizer,
        speculation=speculation,
        proposer=proposer,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
    )


def _make_proposer(
    speculation: Speculation,
    target: LoadedModel,
    draft_files: ModelFiles | None,
    dtype: str,
    device: str,
    reuse_prefixes: bool,
) -> Proposer | None:
    if speculation.method == "ngram":
        return NgramProposer(speculation.prompt_lookup_min, speculation.prompt_lookup_max)
    if speculation.method == "suffix":
        return SuffixProposer()
    if draft_files is None:
        return None
    spec = read_modelspec(draft_files.path)
    # Room for as many tokens as the target has: where a target's sequence fits, so does its draft.
    itemsize = resolve_dtype(dtype, resolve_device(device)).itemsize
    draft = load_model(
        draft_files,
        dtype=dtype,
        device=device,
        quantization=speculation.quantization,
        kv_cache_bytes=target.pool.num_blocks * BLOCK_SIZE * spec.kv_bytes_per_token(itemsize),
        max_context=None,
        reuse_prefixes=reuse_prefixes,
        on_layer=lambda done, total: None,
    )
    return DraftModelProposer(
        draft.runner,
        draft.pool,
        vocab_size=target.spec.vocab_size,
        max_context=draft.max_context,
        keep_probs=speculation.rule == "rejection",
    )


@dataclass(frozen=True, slots=True)
class _HeadFiles:
    spec: HeadSpec
    files: ModelFiles
    taps: tuple[int, ...]  # layers of its target


def _read_head(target: ModelFiles, files: ModelFiles) -> _HeadFiles:
    head, spec = read_head(files.path), read_modelspec(target.path)
    check_head(head, spec, name=files.name, target_name=target.name)
    return _HeadFiles(head, files, head.taps(spec.num_layers))


def _make_eagle(
    speculation: Speculation, target: LoadedModel, head: _HeadFiles, reuse_prefixes: bool
) -> EagleProposer:
    decoder, num_blocks, spec = target.runner.decoder, target.pool.num_blocks, head.spec
    weights = open_weights(
        head.files.path, num_heads=spec.num_heads, num_kv_heads=spec.num_kv_heads
    )
    loaded = load_head(spec, weights, decoder.embedding, quantization=speculation.quantization)
    return EagleProposer(
        loaded,
        KVCache(
            1,
            num_blocks,
            BLOCK_SIZE,
            spec.num_kv_heads,
            spec.head_dim,
            decoder.dtype,
            decoder.device,
        ),
        BlockPool(num_blocks, BLOCK_SIZE, reuse=reuse_prefixes),
        keep_probs=speculation.rule == "rejection",
    )


def _check_pairing(target: ModelFiles, tokenizer: Tokenizer, draft: ModelFiles) -> None:
    if is_head(draft.path):
        raise PairingError(f"draft {draft.name} is a head, not a model; use method eagle")
    difference = first_difference(tokenizer, load_tokenizer(draft.path))
    if difference is not None:
        raise PairingError(
            f"draft {draft.name} does not fit target {target.name}: {difference}; "
            "choose a draft with the target's own tokenizer"
        )


def _default_kv_cache_bytes(device: str, draft_files: ModelFiles | None) -> int:
    where = resolve_device(device)
    if where.type != "cuda":
        return _CPU_KV_CACHE_BYTES
    free, _ = torch.cuda.mem_get_info(where)
    return int(free * (_GPU_KV_CACHE_SHARE_WITH_DRAFT if draft_files else _GPU_KV_CACHE_SHARE))


def _check_positive(name: str, value: int | None) -> None:
    if value is not None and value < 1:
        raise OptionError(f"{name} must be at least 1, got {value}")
