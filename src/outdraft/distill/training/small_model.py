"""A small Llama that learns the target's distribution: what `--kind model` trains."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from outdraft.distill.data.shards import TextBatch
from outdraft.distill.evaluation import Draw
from outdraft.distill.network import INITIAL_STD, Network, initialize_matrices
from outdraft.distill.settings import ModelSize, TrainSettings
from outdraft.distill.target import Target
from outdraft.modelspec import ModelSpec

_LOGIT_ROWS = 8192  # rows whose logits over the whole vocabulary are computed at once
_LOGIT_BYTES = 14  # that a training step takes for each row and token of the vocabulary
_MEMORY_SHARE = 0.25
_CPU_MEMORY = 8 << 30


def model_spec(target: ModelSpec, size: ModelSize) -> ModelSpec:
    """A Llama with the target's vocabulary, context and end tokens."""
    return ModelSpec(
        family="llama",
        num_layers=size.layers,
        hidden_size=size.hidden,
        intermediate_size=size.intermediate,
        num_heads=size.heads,
        num_kv_heads=size.kv_heads,
        head_dim=size.hidden // size.heads,
        vocab_size=target.vocab_size,
        max_context=target.max_context,
        rms_eps=1e-5,
        rope_theta=target.rope_theta,
        tie_embeddings=True,
        eos_ids=target.eos_ids,
        bos_id=target.bos_id,
    )


class SmallModel(nn.Module):
    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.spec = spec
        self.network = Network(spec)

    @torch.no_grad()
    def initialize(self, target: Target) -> None:
        """Random layers; the embedding from the principal components of the target's."""
        initialize_matrices(self.network)
        for name, parameter in self.network.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                parameter.mul_((2 * self.spec.num_layers) ** -0.5)
        embedding = target.network.embedding.float()
        if self.spec.hidden_size < embedding.shape[1]:
            centred = embedding - embedding.mean(0)
            _, directions = torch.linalg.eigh(centred.T @ centred)  # ascending
            small = centred @ directions[:, -self.spec.hidden_size :]
            self.network.embedding.copy_(small * (INITIAL_STD * 2 / small.std()))

    def loss(self, batch: TextBatch, target: Target, settings: TrainSettings) -> Tensor:
        """Mean over answer tokens of (1 - hard) · KL + hard · CE with the likeliest token."""
        hard = settings.hard
        hidden, _ = self.network(batch.tokens[:, :-1])
        rows = self.network.model.norm(hidden[batch.is_answer[:, 1:]])  # (A, hidden)
        total = rows.new_zeros((), dtype=torch.float32)
        # Logits are kept for the backward pass where there is memory, else computed again.
        memory = _CPU_MEMORY
        if rows.device.type == "cuda":
            memory = torch.cuda.get_device_properties(rows.device).total_memory
        is_tight = len(rows) * self.spec.vocab_size * _LOGIT_BYTES > _MEMORY_SHARE * memory
        for at in range(0, len(rows), _LOGIT_ROWS):
            part = slice(at, at + _LOGIT_ROWS)
            inputs = (rows[part], self.network.head, batch.top_ids[part], batch.top_logprobs[part])
            if is_tight:
                total = total + checkpoint(_divergence, *inputs, hard, use_reentrant=False)
            else:
                total = total + _divergence(*inputs, hard)
        return total / max(len(rows), 1)  # type: ignore[no-any-return]

    def guesses(self, batch: TextBatch, target: Target, num_steps: int, draw: Draw) -> Tensor:
        """See `evaluation.Drafter`. A model's guess is the same at every draft position."""
        hidden, _ = self.network(batch.tokens)
        rows = hidden[:, :-1][batch.is_answer[:, 1:]]
        guessed = torch.full_like(batch.tokens, -1)
        numbers = torch.arange(len(rows), device=rows.device)
        guessed[batch.is_answer] = draw(self.network.logits(rows).float(), numbers, None)
        return guessed.expand(num_steps, -1, -1)


def _divergence(
    rows: Tensor, head: Tensor, top_ids: Tensor, top_logprobs: Tensor, hard: float
) -> Tensor:
    """Summed over rows. All tokens outside the target's likeliest count as one."""
    logits = F.linear(rows, head).float()
    logprobs = logits.gather(1, top_ids) - logits.logsumexp(1, keepdim=True)
    target_probs = top_logprobs.exp()
    kl = (target_probs * (top_logprobs - logprobs)).sum(1)
    target_rest = (1 - target_probs.sum(1)).clamp(min=1e-6)
    rest = (1 - logprobs.exp().sum(1)).clamp(min=1e-6)
    kl = kl + target_rest * (target_rest.log() - rest.log())
    return ((1 - hard) * kl - hard * logprobs[:, 0]).sum()
