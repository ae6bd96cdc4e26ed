"""The target of a distillation: its files, its shape, its tokenizer and its network."""

from dataclasses import dataclass
from pathlib import Path

import torch

from outdraft.catalog import ModelFiles, resolve
from outdraft.distill.network import Network, RotaryEmbedding
from outdraft.engine.loading import resolve_device, resolve_dtype
from outdraft.engine.models.weights import open_weights, read_shaped
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
        return end_of_text_ids(self.tokenizer, self.spec)

    def identity(self) -> dict[str, object]:
        """Values that tell this target's texts from another's."""
        keys = ("num_parameters", "num_bytes", "vocab_size", "hidden_size", "num_layers")
        return {"name": self.files.path.name, **{key: getattr(self.spec, key) for key in keys}}


def end_of_text_ids(tokenizer: Tokenizer, spec: ModelSpec) -> tuple[int, ...]:
    return tuple(dict.fromkeys((*tokenizer.eos_ids, *spec.eos_ids)))


def load_target(name: str, *, device: str, dtype: str) -> Target:
    where = resolve_device(device)
    files = resolve(name)
    spec = read_modelspec(files.path)  # refuses what the engine cannot run
    tokenizer = load_tokenizer(files.path)
    if not end_of_text_ids(tokenizer, spec):
        raise ModelError(
            f"{files.name} names no end-of-text token, so its answers would never end; "
            "add eos_token_id to its config.json"
        )
    network = load_network(files.path, spec, dtype=resolve_dtype(dtype, where), device=where)
    return Target(files, spec, tokenizer, network)


def load_network(
    path: Path, spec: ModelSpec, *, dtype: torch.dtype, device: torch.device
) -> Network:
    """A model's files as a network that is not trained."""
    with torch.device("meta"):
        network = Network(spec)
    weights = open_weights(path, num_heads=spec.num_heads, num_kv_heads=spec.num_kv_heads)
    state = {
        name: read_shaped(weights, name, parameter.shape).to(device=device, dtype=dtype)
        for name, parameter in network.named_parameters()
    }
    network.load_state_dict(state, assign=True)
    network.rotary = RotaryEmbedding(spec).to(device)  # a buffer, so no tensor of the files
    return network.requires_grad_(False).eval()
