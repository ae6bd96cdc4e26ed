"""One layer over the target's hidden states: what `--kind head` trains.

The mathematics is that of `outdraft.modelspec.head`, whose names the parameters have. Trained on
its own predictions: step 1 starts from true features at every place s of a text at once, step j
goes on from the output of step j - 1 at place s + j - 1. A chain's query sees the keys of true
features up to its start s, and those of its own earlier steps.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from outdraft.distill.acceptance import Draw
from outdraft.distill.network import Mlp, Norm, Rotation
from outdraft.distill.shards import Batch
from outdraft.distill.target import Target
from outdraft.modelspec import inverse_frequencies
from outdraft.modelspec.head import NUM_TAPS, HeadSpec

_SPREAD = 0.02


class HeadAttention(nn.Module):
    def __init__(self, spec: HeadSpec) -> None:
        super().__init__()
        width, dim = 2 * spec.hidden_size, spec.head_dim
        self._kv_heads, self._dim = spec.num_kv_heads, dim
        self.q_proj = nn.Linear(width, spec.num_heads * dim, bias=False)
        self.k_proj = nn.Linear(width, spec.num_kv_heads * dim, bias=False)
        self.v_proj = nn.Linear(width, spec.num_kv_heads * dim, bias=False)
        self.o_proj = nn.Linear(spec.num_heads * dim, spec.hidden_size, bias=False)

    def forward(self, x: Tensor, by: Rotation, chain: list[tuple[Tensor, Tensor]]) -> Tensor:
        """x (B, S, 2·hidden) of one step. `chain` has the keys and values of the steps before,
        those of true features first; this step's are added."""
        b, s, _ = x.shape
        q = self._split(self.q_proj(x), -1)  # (B, heads, S, D)
        k = by.turn(self._split(self.k_proj(x), -1))
        v = self._split(self.v_proj(x), -1)
        q = by.turn(q) * self._dim**-0.5
        chain.append((k, v))
        q = q.unflatten(1, (self._kv_heads, -1))  # (B, kv, heads per kv, S, D)
        true_k, true_v = (one[:, :, None, :s] for one in chain[0])
        scores = q @ true_k.transpose(-1, -2)  # (B, kv, per, S, S)
        ahead = torch.ones(s, s, dtype=torch.bool, device=x.device).triu_(1)
        scores = scores.masked_fill(ahead, -torch.inf)
        own = [(q * k[:, :, None, :s]).sum(-1, keepdim=True).to(scores.dtype) for k, _ in chain[1:]]
        weights = torch.cat([scores, *own], -1).softmax(-1, dtype=torch.float32).to(v.dtype)
        mixed = weights[..., :s] @ true_v
        for place, (_, earlier) in enumerate(chain[1:]):
            mixed = mixed + weights[..., s + place, None] * earlier[:, :, None, :s]
        mixed = mixed.flatten(1, 2).transpose(1, 2).reshape(b, s, -1)
        return self.o_proj(mixed)  # type: ignore[no-any-return]

    def _split(self, x: Tensor, heads: int) -> Tensor:
        return x.unflatten(-1, (heads, self._dim)).transpose(1, 2)  # type: ignore[no-any-return]


class HeadLayer(nn.Module):
    def __init__(self, spec: HeadSpec) -> None:
        super().__init__()
        self.input_layernorm = Norm(spec.hidden_size, spec.rms_eps)
        self.hidden_norm = Norm(spec.hidden_size, spec.rms_eps)
        self.self_attn = HeadAttention(spec)
        self.post_attention_layernorm = Norm(spec.hidden_size, spec.rms_eps)
        self.mlp = Mlp(spec.hidden_size, spec.intermediate_size)
        self._norm_before_residual = spec.norm_before_residual

    def forward(
        self, embedded: Tensor, hidden: Tensor, by: Rotation, chain: list[tuple[Tensor, Tensor]]
    ) -> Tensor:
        normed = self.hidden_norm(hidden)
        residual = normed if self._norm_before_residual else hidden
        both = torch.cat([self.input_layernorm(embedded), normed], -1)
        x = residual + self.self_attn(both, by, chain)
        return x + self.mlp(self.post_attention_layernorm(x))  # type: ignore[no-any-return]


class Head(nn.Module):
    d2t: Tensor
    to_draft: Tensor
    scale: Tensor
    _frequencies: Tensor

    def __init__(self, spec: HeadSpec, taps: tuple[int, ...]) -> None:
        super().__init__()
        self.spec = spec
        self.taps = taps
        hidden = spec.hidden_size
        self.fc = nn.Linear(NUM_TAPS * spec.target_hidden_size, hidden, bias=False)
        self.layers = nn.ModuleList([HeadLayer(spec)])
        self.norm = Norm(hidden, spec.rms_eps)
        self.lm_head = nn.Linear(hidden, spec.draft_vocab_size, bias=False)
        # The sizes of the target's states differ a thousandfold from place to place. The fc that
        # is trained reads them in units of their usual size; the saved one reads them as they are.
        self.register_buffer("scale", torch.ones(NUM_TAPS * spec.target_hidden_size))
        # Draft id → target id, and back (-1: not in the draft vocabulary).
        ids = torch.arange(spec.draft_vocab_size)
        self.register_buffer("d2t", ids)
        self.register_buffer("to_draft", torch.full((spec.vocab_size,), -1), persistent=False)
        frequencies = torch.as_tensor(inverse_frequencies(spec), dtype=torch.float32)
        self.register_buffer("_frequencies", frequencies, persistent=False)
        self.choose(ids)

    def choose(self, vocabulary: Tensor) -> None:
        """The target's ids that the head can draw, ascending."""
        self.d2t = vocabulary.to(self.d2t.device)
        self.to_draft.fill_(-1)
        self.to_draft[self.d2t] = torch.arange(len(vocabulary), device=self.d2t.device)

    @property
    def saved_fc(self) -> Tensor:
        return self.fc.weight / self.scale

    @torch.no_grad()
    def start_from(self, target: Target, batch: Batch) -> None:
        """The last tap passes through and the lm_head is the target's: it starts as a head that
        says again what the target said, and learns what comes next."""
        for parameter in self.parameters():
            if parameter.ndim > 1:
                nn.init.normal_(parameter, std=_SPREAD)
        self.scale.fill_(1)
        states = self.features(batch, target)[batch.is_answer]
        self.scale.copy_(states.square().mean(0).sqrt().clamp(min=1e-6))
        size = self.spec.target_hidden_size
        if size != self.spec.hidden_size:
            return
        self.fc.weight[:, -size:] += torch.eye(size, device=self.fc.weight.device)
        # Norms here have no weights yet: the target's last one, and the units, go into lm_head.
        usual = states[:, -size:].square().mean(1).sqrt().median()
        columns = target.network.model.norm.weight.float() * self.scale[-size:] / usual
        self.lm_head.weight.copy_(target.network.head[self.d2t].float() * columns)

    def features(self, batch: Batch, target: Target) -> Tensor:
        """(B, T, 3·hidden) of the target, in units of their usual size."""
        with torch.no_grad():
            _, tapped = target.network(batch.tokens, taps=self.taps)
            return torch.cat(tapped, -1).float() / self.scale

    def unroll(self, batch: Batch, target: Target, num_steps: int) -> list[Tensor]:
        """Each step's normed outputs: [j][b, s] is for token s + 2 + j of text b.

        Step j has one chain fewer than the one before: its token would be behind the end.
        """
        tokens = batch.tokens
        width = tokens.shape[1]
        # The stream stays in float32, as it will be where the head runs.
        hidden = self.fc(self.features(batch, target)[:, : width - 2]).float()
        chain: list[tuple[Tensor, Tensor]] = []
        outputs = []
        for j in range(min(num_steps, width - 2)):
            size = width - 2 - j
            embedded = F.embedding(tokens[:, j + 1 : j + 1 + size], target.network.embedding)
            by = self._rotation(j, size)
            hidden = self.layers[0](embedded.float(), hidden[:, :size], by, chain)
            outputs.append(self.norm(hidden))
        return outputs

    def loss(
        self, batch: Batch, target: Target, hard: float, *, num_steps: int = 5, decay: float = 0.8
    ) -> Tensor:
        """Weighted mean over steps; each the mean over chains that predict an answer's token."""
        top = batch.top_ids.shape[1]
        shape = (*batch.tokens.shape, top)
        ids = batch.tokens.new_zeros(shape)
        probs = torch.zeros(shape, device=batch.tokens.device)
        draft_ids = self.to_draft[batch.top_ids]
        known = draft_ids >= 0
        ids[batch.is_answer] = draft_ids.clamp(min=0)
        probs[batch.is_answer] = batch.top_logprobs.exp() * known
        total = torch.zeros((), device=batch.tokens.device)
        weight = 0.0
        for j, outputs in enumerate(self.unroll(batch, target, num_steps)):
            where = batch.is_answer[:, j + 2 :]
            step = self._step_loss(
                outputs[where], ids[:, j + 2 :][where], probs[:, j + 2 :][where], hard
            )
            total = total + decay**j * step
            weight += decay**j
        return total / max(weight, 1e-9)

    def _step_loss(self, outputs: Tensor, ids: Tensor, probs: Tensor, hard: float) -> Tensor:
        """Cross entropy with the target's likeliest tokens, as far as the head can draw them."""
        # In one pass over the logits: they are most of the memory that a step moves.
        logprobs = F.log_softmax(self.lm_head(outputs), 1, dtype=torch.float32)
        mine = logprobs.gather(1, ids)  # (A, top)
        soft = -(probs * mine).sum(1)
        best = -mine[:, 0] * (probs[:, 0] > 0)
        return ((1 - hard) * soft + hard * best).sum() / max(len(outputs), 1)

    def guesses(self, batch: Batch, target: Target, num_steps: int, draw: Draw) -> Tensor:
        """(num_steps, B, T): what is drafted for each token, see `acceptance.py`."""
        guessed = torch.full((num_steps, *batch.tokens.shape), -1, device=batch.tokens.device)
        numbers = batch.is_answer.flatten().cumsum(0).view_as(batch.is_answer) - 1
        for j, outputs in enumerate(self.unroll(batch, target, num_steps)):
            where = batch.is_answer[:, j + 2 :]
            logits = self.lm_head(outputs[where]).float()
            guessed[j, :, j + 2 :][where] = draw(logits, numbers[:, j + 2 :][where], self.d2t)
        return guessed

    def _rotation(self, first: int, size: int) -> Rotation:
        positions = torch.arange(first, first + size, device=self._frequencies.device)
        angles = positions[None, None, :, None].float() * self._frequencies
        angles = torch.cat([angles, angles], -1)
        return Rotation(angles.cos(), angles.sin())


def choose_vocabulary(frequencies: Tensor, size: int, always: tuple[int, ...]) -> Tensor:
    """The most frequent tokens and those that end a text, ascending by id."""
    counts = frequencies.clone()
    counts[list(always)] = counts.max() + 1
    return counts.topk(min(size, len(counts))).indices.sort().values
