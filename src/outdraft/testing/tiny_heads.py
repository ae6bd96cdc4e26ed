"""Tiny EAGLE heads for tiny models, in both layouts of public heads.

    target = tiny_model(tmp_path / "target", "qwen3")
    head = tiny_head(tmp_path / "head", target)        # right 1 time in 5, or 2 (tied models)
    other = tiny_head(tmp_path / "random", target, fitted=False, layout="original")

The layer is random, but its queries resemble its keys, so that a token attends to itself first. The
lm_head of a fitted head is a least-squares solution for the target's logits over random texts of
the letters F to M: nothing is trained.
"""

import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from outdraft.catalog import ModelFiles
from outdraft.engine.kv_cache import KVCache
from outdraft.engine.loading import load_model
from outdraft.engine.models.head import load_head
from outdraft.engine.models.weights import SafetensorsWeights
from outdraft.engine.runners.eager import EagerHeadRunner
from outdraft.engine.runners.runner import Run
from outdraft.errors import unknown_choice
from outdraft.modelspec import read_modelspec
from outdraft.modelspec.head import HeadSpec, head_config
from outdraft.whole_file import write_json

LAYOUTS = ("speculators", "original")
# A head is fitted to texts of a few letters; tests use prompts of the same letters.
_NUM_TEXTS, _LENGTH, _TOKENS = 8, 256, (40, 48)
_SHARED = ("hidden_size", "intermediate_size", "num_heads", "num_kv_heads", "head_dim",
           "vocab_size", "rms_eps", "rope_theta", "max_context")  # fmt: skip
# How much wider than 1/sqrt(columns) a matrix is spread, by a part of its name.
_GAINS = {"q_proj": 1.2, "k_proj": 1.2, "lm_head": 3.0, "o_proj": 2.0, "down_proj": 1.5}


def tiny_head(
    folder: Path,
    target: Path,
    *,
    seed: int = 0,
    fitted: bool = True,
    layout: str = "speculators",
    full_vocab: bool = False,
    own_embedding: bool = False,
    norm_before_residual: bool = False,
    taps: tuple[int, ...] = (0, 1, 2),
) -> Path:
    """Write a head for the tiny model in `target` into `folder` and return the folder.

    The draft vocabulary leaves out every fourth token of the target's, unless `full_vocab`.
    """
    if layout not in LAYOUTS:
        raise unknown_choice("layout", layout, LAYOUTS)
    model = read_modelspec(target)
    kept = [i for i in range(model.vocab_size) if full_vocab or i % 4 != 3]
    spec = HeadSpec(
        family="llama",
        num_layers=1,
        target_hidden_size=model.hidden_size,
        draft_vocab_size=len(kept),
        norm_before_residual=norm_before_residual,
        layer_ids=taps,
        has_embedding=own_embedding,
        **{name: getattr(model, name) for name in _SHARED},
    )
    tensors = _random_tensors(spec, seed)
    if not full_vocab:
        ids = torch.tensor(kept)
        tensors["d2t"] = ids - torch.arange(len(kept))
        tensors["t2d"] = torch.zeros(model.vocab_size, dtype=torch.bool)
        tensors["t2d"][ids] = True
    _write(folder, spec, tensors, layout)
    if fitted:
        tensors["lm_head.weight"] = _fitted_lm_head(folder, spec, target, kept, seed)
        _write(folder, spec, tensors, layout)
    return folder


def _write(folder: Path, spec: HeadSpec, tensors: dict[str, torch.Tensor], layout: str) -> None:
    config: dict[str, Any] = head_config(spec, target_name="tiny", k=5)
    if layout == "original":
        tensors = {name.replace("layers.0.", "midlayer."): each for name, each in tensors.items()}
        layer = config.pop("transformer_layer_config")
        for key in ("speculators_model_type", "speculators_config", "has_own_embed_tokens"):
            del config[key]
        config = {**layer, **config, "architectures": ["LlamaForCausalLMEagle3"]}
    write_json(folder / "config.json", config, indent=2)
    whole = {name: each.contiguous() for name, each in tensors.items()}
    save_file(whole, folder / "model.safetensors")


def _random_tensors(spec: HeadSpec, seed: int) -> dict[str, torch.Tensor]:
    made: dict[str, torch.Tensor] = {}
    for name, shape in spec.tensor_shapes().items():
        if name == "d2t":
            continue
        values = np.random.default_rng([seed, zlib.crc32(name.encode())]).standard_normal(shape)
        if len(shape) == 1:
            values = 1 + 0.1 * values
        else:
            gain = next((each for part, each in _GAINS.items() if part in name), 1.0)
            values *= gain * shape[1] ** -0.5
        made[name] = torch.from_numpy(values.astype(np.float32))
    # Queries like the keys they look for: a token attends to itself first.
    attention, dim = "layers.0.self_attn", spec.head_dim
    keys = made[f"{attention}.k_proj.weight"].view(spec.num_kv_heads, dim, -1)
    queries = keys.repeat_interleave(spec.num_heads // spec.num_kv_heads, 0)
    made[f"{attention}.q_proj.weight"] = queries.reshape(spec.num_heads * dim, -1)
    return made


@torch.inference_mode()
def _fitted_lm_head(
    folder: Path, spec: HeadSpec, target: Path, kept: list[int], seed: int
) -> torch.Tensor:
    """(D, H): least squares from the head's last hidden states to the target's logits."""
    model = load_model(
        ModelFiles(target.name, target),
        dtype="float32",
        device="cpu",
        quantization="none",
        kv_cache_bytes=1 << 20,
        reuse_prefixes=False,
        taps=spec.taps(2),
    )
    head = load_head(spec, SafetensorsWeights(folder), model.decoder.embedding)
    size = model.pool.block_size
    shape = (1, 64, size, spec.num_kv_heads, spec.head_dim)
    runner = EagerHeadRunner(head, KVCache(*shape, torch.float32, torch.device("cpu")))
    table = list(range(1, 1 + -(-_LENGTH // size)))
    choose = np.random.default_rng(seed)
    inputs, wanted = [], []
    for _ in range(_NUM_TEXTS):
        tokens = choose.integers(*_TOKENS, _LENGTH).tolist()
        result = model.runner.run([Run(tokens, 0, table, num_logits=_LENGTH)])
        assert result.features is not None
        features = runner.head.fuse(result.features)[:-1]
        output = runner.run([Run(tokens[1:], 1, table, _LENGTH - 1, features)]).hidden
        inputs.append(torch.nn.functional.rms_norm(output, output.shape[1:], None, spec.rms_eps))
        wanted.append(result.logits[1:, kept])
    x, y = torch.cat(inputs), torch.cat(wanted)
    x = x * SafetensorsWeights(folder).get("norm.weight")
    y = y - y.mean(1, keepdim=True)
    ridge = 0.1 * len(x) * torch.eye(x.shape[1])
    solved: torch.Tensor = torch.linalg.solve(x.T @ x + ridge, x.T @ y)
    return solved.T
