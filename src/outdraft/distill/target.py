"""The target of a distillation: its files, its shape, its tokenizer, and itself as a network."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from outdraft.catalog import ModelFiles, resolve
from outdraft.distill.network import Network, load_network
from outdraft.engine.loading import resolve_device, resolve_dtype
from outdraft.engine.tokenizer import Tokenizer, load_tokenizer
from outdraft.errors import ModelError
from outdraft.modelspec import ModelSpec, read_modelspec


@dataclass(frozen=True, slots=True)
class Target:
    files: ModelFiles
    spec: ModelSpec
    tokenizer: Tokenizer
    network: Network

    @property
    def device(self) -> torch.device:
        return self.network.device

    @property
    def eos_ids(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys((*self.tokenizer.eos_ids, *self.spec.eos_ids)))

    def identity(self) -> dict[str, object]:
        """What tells this target's texts from another's."""
        spec = self.spec
        return {
            "name": self.files.path.name,
            "num_parameters": spec.num_parameters,
            "num_bytes": spec.num_bytes,
            "vocab_size": spec.vocab_size,
            "hidden_size": spec.hidden_size,
            "num_layers": spec.num_layers,
        }


def load_target(name: str, *, device: str, dtype: str) -> Target:
    where = resolve_device(device)
    files = resolve(name)
    spec = read_modelspec(files.path)  # refuses what no one here can run
    tokenizer = load_tokenizer(files.path)
    if not (tokenizer.eos_ids or spec.eos_ids):
        raise ModelError(
            f"{files.name} names no end-of-text token, so its answers would never end; "
            "add eos_token_id to its config.json"
        )
    network = load_network(files.path, spec, dtype=resolve_dtype(dtype, where), device=where)
    return Target(files, spec, tokenizer, network)
