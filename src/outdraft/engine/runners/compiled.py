"""Runners whose steps are one call of the compiled library (`native/step.h`)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence as Seq

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from outdraft.engine.kv_cache import SCRATCH_BLOCK, KVCache
from outdraft.engine.models.decoder import Decoder
from outdraft.engine.models.embedding import AnyEmbedding
from outdraft.engine.models.head import FIRST_KEY, Head
from outdraft.engine.models.linear import AnyProduct
from outdraft.engine.models.packed import PackedProduct
from outdraft.engine.native.computer import computer
from outdraft.engine.native.library import (
    GROUP,
    LANES,
    CBatch,
    CCacheShape,
    CLayer,
    CModel,
    CProduct,
)
from outdraft.engine.rows import join_rows
from outdraft.engine.runners.runner import Run, RunResult
from outdraft.modelspec import HeadSpec, ModelSpec, inverse_frequencies

IntArray = npt.NDArray[np.int32]


class CompiledRunner:
    """Runs a decoder. Keys are laid out by block as `native/attention.h` says."""

    min_rows = 1

    def __init__(self, decoder: Decoder, cache: KVCache, taps: Seq[int] = ()) -> None:
        spec = decoder.spec
        self.vocab_size = spec.vocab_size
        self._taps = np.array(sorted(taps), dtype=np.int32)
        self._kept = _Kept(decoder, cache)
        layers = (CLayer * spec.num_layers)()
        for index, layer in enumerate(decoder.layers):
            layers[index] = CLayer(
                *(_struct(each) for each in (layer.qkv, layer.output, layer.gate_up, layer.down)),
                self._kept.pointer(layer.attention_norm.weight),
                self._kept.pointer(layer.mlp_norm.weight),
                None if layer.qk_norm is None else self._kept.pointer(layer.qk_norm),
                cache.keys[index].data_ptr(),
                cache.values[index].data_ptr(),
                layer.rotates,
                layer.window or 0,
            )
        self._model = CModel(
            hidden_size=spec.hidden_size,
            intermediate_size=spec.intermediate_size,
            vocab_size=spec.vocab_size,
            num_layers=spec.num_layers,
            cache=_shape(spec, cache),
            eps=spec.rms_eps,
            query_scale=spec.head_dim**-0.5,
            layers=layers,
            norm=self._kept.pointer(decoder.norm.weight),
            head=_struct(decoder.head),
            embedding=_struct(decoder.embedding),
            frequencies=self._kept.pointer(torch.as_tensor(inverse_frequencies(spec))),
        )

    def run(self, runs: Seq[Run]) -> RunResult:
        return run_step(self._model, runs, self._taps)


class CompiledHeadRunner:
    """Runs a head, whose logits are over a draft vocabulary."""

    min_rows = 1

    def __init__(self, head: Head, cache: KVCache) -> None:
        spec = head.spec
        self.vocab_size = spec.draft_vocab_size
        self.head = head
        self._kept = _Kept(head, cache)
        products = (head.parts[name] for name in ("qkv", "output", "gate_up", "down"))
        layer = CLayer(
            *map(_struct, products),
            None,
            self._kept.pointer(head.norms["mlp"].weight),
            None,
            cache.keys[0].data_ptr(),
            cache.values[0].data_ptr(),
            True,
            0,
        )
        self._model = CModel(
            hidden_size=spec.hidden_size,
            intermediate_size=spec.intermediate_size,
            vocab_size=spec.draft_vocab_size,
            num_layers=1,
            cache=_shape(spec, cache),
            eps=spec.rms_eps,
            query_scale=spec.head_dim**-0.5,
            layers=ctypes.pointer(layer),
            norm=self._kept.pointer(head.norms["last"].weight),
            head=_struct(head.parts["lm_head"]),
            embedding=_struct(head.embedding),
            first_key=FIRST_KEY,
            frequencies=self._kept.pointer(torch.as_tensor(inverse_frequencies(spec))),
            token_norm=self._kept.pointer(head.norms["token"].weight),
            hidden_norm=self._kept.pointer(head.norms["hidden"].weight),
            norm_before_residual=spec.norm_before_residual,
        )

    def run(self, runs: Seq[Run]) -> RunResult:
        return run_step(self._model, runs)

    def start_chain(self, runs: Seq[Run], num_tokens: int) -> CompiledHeadChain:
        return CompiledHeadChain(self, runs, num_tokens)


class CompiledHeadChain:
    def __init__(self, runner: CompiledHeadRunner, runs: Seq[Run], num_tokens: int) -> None:
        self._runner = runner
        self._ends = [run.start + len(run.tokens) for run in runs]
        # Positions after the end of a table are written to the scratch block.
        self._tables = [[*run.table, *[SCRATCH_BLOCK] * num_tokens] for run in runs]
        self._read(runs)

    def _read(self, runs: Seq[Run]) -> None:
        result = self._runner.run(runs)
        self.logits, self._hidden = result.logits, result.hidden

    def extend(self, tokens: Seq[int]) -> None:
        self._read(
            [
                Run([token], end, table, 1, features=self._hidden[index : index + 1])
                for index, (token, end, table) in enumerate(
                    zip(tokens, self._ends, self._tables, strict=True)
                )
            ]
        )
        self._ends = [end + 1 for end in self._ends]


class _Kept:
    """What a structure points at must live as long as it does."""

    def __init__(self, *owners: object) -> None:
        self._objects = [*owners]

    def pointer(self, values: Tensor) -> int:
        kept = values.float().contiguous()
        self._objects.append(kept)
        return kept.data_ptr()


def can_compile(model: Decoder | Head) -> bool:
    """Whether the library has all of the model's products and shapes."""
    spec = model.spec
    per_kv = spec.num_heads // spec.num_kv_heads * spec.head_dim  # rounded by one thread
    widths = (spec.hidden_size, spec.intermediate_size, per_kv)
    return (
        all(isinstance(each, PackedProduct) for each in (model.embedding, *model.products))
        and all(width % GROUP == 0 for width in widths)
        and spec.head_dim % LANES == 0
    )


def run_step(model: CModel, runs: Seq[Run], taps: IntArray | None = None) -> RunResult:
    tokens: list[int] = []
    positions: list[int] = []
    slots: list[int] = []
    first_rows: list[int] = []
    first_blocks: list[int] = []
    tables: list[int] = []
    wanted: list[int] = []
    for run in runs:
        first_rows.append(len(tokens))
        first_blocks.append(len(tables))
        tokens.extend(run.tokens)
        tables.extend(run.table)
        for position in range(run.start, run.start + len(run.tokens)):
            positions.append(position)
            slots.append(run.table[position >> 4] << 4 | position & 15)
        wanted.extend(range(len(tokens) - run.num_logits, len(tokens)))
    num_rows, num_wanted, hidden_size = len(tokens), len(wanted), model.hidden_size
    numbers = np.array(
        [*tokens, *positions, *slots, *first_rows, *first_blocks, *tables, *wanted], dtype=np.int32
    )
    at = iter(_offsets(numbers, tokens, positions, slots, first_rows, first_blocks, tables, wanted))
    hidden = torch.empty(num_wanted, hidden_size)
    logits = torch.empty(num_wanted, model.vocab_size)
    parts = [run.features for run in runs if run.features is not None]
    inputs = join_rows(parts) if parts else None
    num_taps = 0 if taps is None else len(taps)
    features = torch.empty(num_rows, num_taps * hidden_size) if num_taps else None
    batch = CBatch(
        num_rows,
        len(runs),
        num_wanted,
        num_taps,
        *at,
        taps.ctypes.data if num_taps and taps is not None else None,
        None if inputs is None else inputs.contiguous().data_ptr(),
        None if features is None else features.data_ptr(),
        hidden.data_ptr(),
        logits.data_ptr() if num_wanted else None,
    )
    computer.step(model, batch)
    return RunResult(logits, hidden, features)


def _offsets(numbers: IntArray, *parts: list[int]) -> list[int]:
    """The address of each part."""
    addresses, address = [], numbers.ctypes.data
    for part in parts:
        addresses.append(address)
        address += 4 * len(part)
    return addresses


def _struct(product: AnyProduct | AnyEmbedding) -> CProduct:
    assert isinstance(product, PackedProduct)
    return product.struct


def _shape(spec: ModelSpec | HeadSpec, cache: KVCache) -> CCacheShape:
    heads = spec.num_heads, spec.num_kv_heads, spec.head_dim
    return CCacheShape(*heads, cache.num_blocks, cache.keys[0].dtype == torch.bfloat16)
