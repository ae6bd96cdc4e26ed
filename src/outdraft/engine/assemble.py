"""Builds an engine from settings."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch

from outdraft.catalog import (
    DownloadProgress,
    ModelFiles,
    best_shipped_draft,
    no_progress,
    resolve,
)
from outdraft.engine.controller import Controller
from outdraft.engine.costs import CostsTimer
from outdraft.engine.drafting import AutoDrafting, Drafting, FixedDrafting
from outdraft.engine.engine import Engine
from outdraft.engine.kept_costs import kept_costs
from outdraft.engine.kv_cache import BlockPool, KVCache
from outdraft.engine.loading import BLOCK_SIZE, LoadedModel, load_model, resolve_device
from outdraft.engine.models.head import load_head
from outdraft.engine.models.weights import open_weights
from outdraft.engine.native.memory import return_freed_memory
from outdraft.engine.native.rounds import rounds_library
from outdraft.engine.proposers.draft_model import DraftModelProposer
from outdraft.engine.proposers.eagle import EagleProposer
from outdraft.engine.proposers.ngram import NgramProposer
from outdraft.engine.proposers.proposer import Proposer
from outdraft.engine.proposers.suffix import SuffixProposer
from outdraft.engine.runners.compiled import CompiledHeadRunner, can_compile
from outdraft.engine.runners.eager import EagerHeadRunner
from outdraft.engine.runners.runner import HeadRunner
from outdraft.engine.tokenizer import Tokenizer, load_tokenizer
from outdraft.errors import OptionError, PairingError
from outdraft.modelspec import HeadSpec, read_head, read_modelspec
from outdraft.modelspec.head import check_draft_kind, check_head_fits, draft_method
from outdraft.modelspec.vocabulary import vocabulary_difference
from outdraft.speculation import OFF, WITH_DRAFT, Speculation, check_own_method

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
    progress: DownloadProgress | None = no_progress,
    on_layer: Callable[[int, int], None] = lambda done, total: None,
    on_measured: Callable[[int, int], None] = lambda done, total: None,
) -> Engine:
    """Loads a target (and a draft, if the speculation names one) and returns an engine.

    target: a catalog name, a hub id, a folder of safetensors or a .gguf file.
    progress: called during downloads; None draws a bar on stderr.
    on_measured: called while method auto times steps and drafts, which it does once.
    """
    for name, value in (
        ("max_num_seqs", max_num_seqs),
        ("max_num_batched_tokens", max_num_batched_tokens),
        ("max_model_len", max_model_len),
        ("kv_cache_memory_bytes", kv_cache_bytes),
        ("threads", threads),
    ):
        if value is not None and value < 1:
            raise OptionError(f"{name} must be at least 1, got {value}")
    check_own_method(speculation.method)
    if speculation.is_auto:
        rounds_library()  # else it would be missed after all weights are loaded
    where = resolve_device(device)
    if threads is not None:
        torch.set_num_threads(threads)
    if speculation.draft_tensor_parallel_size not in (None, 1):
        raise OptionError(
            f"draft_tensor_parallel_size is {speculation.draft_tensor_parallel_size}; this engine "
            "runs a draft on one device"
        )
    files = resolve(target, progress=progress)
    tokenizer = load_tokenizer(files.path)
    if speculation.is_auto and speculation.draft is None:
        speculation = _with_shipped_draft(speculation, target, where)
    method = speculation.method  # of the draft
    draft, head = None, None
    taps: tuple[int, ...] = ()
    if (method in WITH_DRAFT or speculation.is_auto) and speculation.draft is not None:
        draft = resolve(speculation.draft, progress=progress)
        if speculation.is_auto:
            method = draft_method(draft.path) or "draft_model"
        # Checked before any weights are loaded.
        check_draft_kind(method, draft.path, draft.name)
        if method == "eagle":
            head, spec = read_head(draft.path), read_modelspec(files.path)
            check_head_fits(head, spec, name=draft.name, target_name=files.name)
            taps = head.taps(spec.num_layers)
        else:
            _check_pairing(files, tokenizer, draft)
    load = partial(load_model, dtype=dtype, device=device, reuse_prefixes=reuse_prefixes)
    model = load(
        files,
        quantization=quantization,
        kv_cache_bytes=kv_cache_bytes
        or _default_kv_cache_bytes(where, has_draft=draft is not None),
        max_context=max_model_len,
        on_layer=on_layer,
        taps=taps,
    )
    proposers: dict[str, Proposer] = {}
    if method == "ngram":
        lengths = speculation.prompt_lookup_min, speculation.prompt_lookup_max
        proposers["ngram"] = NgramProposer(*lengths)
    if speculation.is_auto or method == "suffix":
        proposers["suffix"] = SuffixProposer()
    if draft is not None and head is not None:
        proposers[method] = _make_eagle(speculation, model, draft, head, reuse_prefixes)
    elif draft is not None:
        proposers[method] = _make_draft_model(speculation, model, draft, load)
    return_freed_memory()
    models = {"target": files} if draft is None else {"target": files, "draft": draft}
    kept = kept_costs(
        models,
        where,
        dtype=str(model.decoder.dtype),
        quantization=quantization,
        draft_quantization=speculation.quantization,
        max_tokens=max_num_batched_tokens,
        num_blocks=model.pool.num_blocks,
    )
    timer = CostsTimer(
        model.runner, model.pool, proposers, max_tokens=max_num_batched_tokens, kept=kept
    )
    drafting: Drafting | None = None
    if speculation.is_auto:
        drafting = AutoDrafting(proposers, Controller(timer.measure(on_measured)))
    elif proposers:
        drafting = FixedDrafting(method, proposers[method])
    return Engine(
        model,
        tokenizer,
        speculation=speculation,
        drafting=drafting,
        costs=timer,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
    )


def _with_shipped_draft(speculation: Speculation, target: str, device: torch.device) -> Speculation:
    """With the best draft that ships for the target, in the form that is fastest there."""
    draft, quantization = best_shipped_draft(target), speculation.quantization
    if draft is None:
        return speculation
    if device.type == "cpu" and quantization == "none":
        quantization = "int8"
    return replace(speculation, draft=draft, quantization=quantization)


def _make_draft_model(
    speculation: Speculation,
    target: LoadedModel,
    files: ModelFiles,
    load: Callable[..., LoadedModel],
) -> DraftModelProposer:
    # As many tokens as the target's cache: where a sequence fits there, its draft fits here.
    per_token = read_modelspec(files.path).kv_bytes_per_token(target.decoder.dtype.itemsize)
    draft = load(
        files,
        quantization=speculation.quantization,
        kv_cache_bytes=target.pool.num_blocks * BLOCK_SIZE * per_token,
    )
    return DraftModelProposer(
        draft.runner,
        draft.pool,
        vocab_size=target.spec.vocab_size,
        max_context=draft.max_context,
        keep_probs=speculation.rule == "rejection",
    )


def _make_eagle(
    speculation: Speculation,
    target: LoadedModel,
    files: ModelFiles,
    spec: HeadSpec,
    reuse_prefixes: bool,
) -> EagleProposer:
    blocks = (target.pool.num_blocks, BLOCK_SIZE)
    weights = open_weights(files.path, num_heads=spec.num_heads, num_kv_heads=spec.num_kv_heads)
    embedding = target.decoder.embedding
    head = load_head(spec, weights, embedding, quantization=speculation.quantization)
    cache = KVCache(1, *blocks, spec.num_kv_heads, spec.head_dim, head.dtype, head.device)
    pool = BlockPool(*blocks, reuse=reuse_prefixes)
    keep_probs = speculation.rule == "rejection"
    runner: HeadRunner = (CompiledHeadRunner if can_compile(head) else EagerHeadRunner)(head, cache)
    return EagleProposer(runner, pool, keep_probs=keep_probs)


def _check_pairing(target: ModelFiles, tokenizer: Tokenizer, draft: ModelFiles) -> None:
    difference = vocabulary_difference(tokenizer.tokens(), load_tokenizer(draft.path).tokens())
    if difference is not None:
        raise PairingError(
            f"draft {draft.name} does not fit target {target.name}: {difference}; "
            "choose a draft with the target's own tokenizer"
        )


def _default_kv_cache_bytes(device: torch.device, *, has_draft: bool) -> int:
    if device.type != "cuda":
        return _CPU_KV_CACHE_BYTES
    free, _ = torch.cuda.mem_get_info(device)
    return int(free * (_GPU_KV_CACHE_SHARE_WITH_DRAFT if has_draft else _GPU_KV_CACHE_SHARE))
