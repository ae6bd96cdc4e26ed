"""A small Llama that learns the target's distribution: what `--kind model` trains."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from outdraft.distill.acceptance import Draw
from outdraft.distill.network import Network
from outdraft.distill.shards import Batch
from outdraft.distill.target import Target
from outdraft.errors import OptionError
from outdraft.modelspec import ModelSpec

_LOGIT_ROWS = 8192  # rows whose logits over the whole vocabulary are held at once
_LOGIT_BYTES = 14  # of one row and token, while a step is computed
_MEMORY_SHARE = 0.25
_CPU_MEMORY = 8 << 30
_SPREAD = 0.02


@dataclass(frozen=True, slots=True)
class ModelSize:
    hidden: int = 256
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    intermediate: int = 1024

    def __post_init__(self) -> None:
        for name in ("hidden", "layers", "heads", "kv_heads", "intermediate"):
            if getattr(self, name) < 1:
                raise OptionError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.hidden % (2 * self.heads) or self.heads % self.kv_heads:
            raise OptionError(
                f"a hidden size of {self.hidden} does not split into {self.heads} heads of an even "
                f"size, or those over {self.kv_heads} kv heads; change --hidden, --heads or "
                "--kv-heads"
            )


def model_spec(target: ModelSpec, size: ModelSize) -> ModelSpec:
    """A Llama with the target's vocabulary, context and end tokens."""
    dim = size.hidden // size.heads
    per_layer = (
        2 * size.hidden * size.hidden
        + 2 * size.hidden * size.kv_heads * dim
        + 3 * size.hidden * size.intermediate
        + 2 * size.hidden
    )
    count = target.vocab_size * size.hidden + size.layers * per_layer + size.hidden
    return ModelSpec(
        family="llama",
        num_layers=size.layers,
        hidden_size=size.hidden,
        intermediate_size=size.intermediate,
        num_heads=size.heads,
        num_kv_heads=size.kv_heads,
        head_dim=dim,
        vocab_size=target.vocab_size,
        max_context=target.max_context,
        rms_eps=1e-5,
        rope_theta=target.rope_theta,
        rope_scaling=None,
        tie_embeddings=True,
        qkv_bias=False,
        o_bias=False,
        mlp_bias=False,
        qk_norm=False,
        rope_layers=(True,) * size.layers,
        windows=(None,) * size.layers,
        eos_ids=target.eos_ids,
        bos_id=target.bos_id,
        num_parameters=count,
        bytes_by_dtype={},
    )


class SmallModel(nn.Module):
    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.spec = spec
        self.network = Network(spec)

    def start_from(self, target: Target) -> None:
        """Random layers; the embedding from the main directions of the target's own."""
        for parameter in self.network.parameters():
            if parameter.ndim > 1:
                nn.init.normal_(parameter, std=_SPREAD)
        depth = (2 * self.spec.num_layers) ** -0.5
        for block in self.network.model.layers:
            for projection in (block.self_attn.o_proj, block.mlp.down_proj):  # type: ignore[union-attr]
                with torch.no_grad():
                    projection.weight.mul_(depth)  # type: ignore[union-attr, operator]
        given = target.network.embedding.float()
        if self.spec.hidden_size < given.shape[1]:
            centred = given - given.mean(0)
            _, directions = torch.linalg.eigh(centred.T @ centred)  # ascending
            small = centred @ directions[:, -self.spec.hidden_size :]
            with torch.no_grad():
                self.network.embedding.copy_(small * (_SPREAD * 2 / small.std()))

    def loss(self, batch: Batch, target: Target, hard: float) -> Tensor:
        """Mean over the answers' tokens of (1 - hard) · KL + hard · CE of the likeliest token."""
        hidden, _ = self.network(batch.tokens[:, :-1])
        rows = self.network.model.norm(hidden[batch.is_answer[:, 1:]])  # (A, hidden)
        total = rows.new_zeros((), dtype=torch.float32)
        # Logits are kept for the way back where there is room, else computed twice.
        is_tight = len(rows) * self.spec.vocab_size * _LOGIT_BYTES > _MEMORY_SHARE * _memory(rows)
        for at in range(0, len(rows), _LOGIT_ROWS):
            part = slice(at, at + _LOGIT_ROWS)
            given = (rows[part], self.network.head, batch.top_ids[part], batch.top_logprobs[part])
            if is_tight:
                total = total + checkpoint(_divergence, *given, hard, use_reentrant=False)
            else:
                total = total + _divergence(*given, hard)
        return total / max(len(rows), 1)  # type: ignore[no-any-return]

    def guesses(self, batch: Batch, target: Target, num_steps: int, draw: Draw) -> Tensor:
        """(num_steps, B, T): what is drafted for each token, see `acceptance.py`. A model's
        guess is the same whichever place of a round the token has."""
        hidden, _ = self.network(batch.tokens)
        rows = hidden[:, :-1][batch.is_answer[:, 1:]]
        guessed = torch.full_like(batch.tokens, -1)
        at = torch.arange(len(rows), device=rows.device)
        guessed[batch.is_answer] = draw(self.network.logits(rows).float(), at, None)
        return guessed.expand(num_steps, -1, -1)


def _memory(like: Tensor) -> int:
    if like.device.type != "cuda":
        return _CPU_MEMORY
    return int(torch.cuda.get_device_properties(like.device).total_memory)


def _divergence(
    rows: Tensor, head: Tensor, top_ids: Tensor, top_logprobs: Tensor, hard: float
) -> Tensor:
    """Summed over rows. Tokens outside the target's likeliest count as one."""
    logits = F.linear(rows, head).float()
    mine = logits.gather(1, top_ids) - logits.logsumexp(1, keepdim=True)
    theirs = top_logprobs.exp()
    kl = (theirs * (top_logprobs - mine)).sum(1)
    rest = (1 - theirs.sum(1)).clamp(min=1e-6)
    my_rest = (1 - mine.exp().sum(1)).clamp(min=1e-6)
    kl = kl + rest * (rest.log() - my_rest.log())
    return ((1 - hard) * kl - hard * mine[:, 0]).sum()
