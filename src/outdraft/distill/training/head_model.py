"""One layer over the target's hidden states: what `--kind head` trains.

The mathematics is that of docs/heads.md, whose names the parameters have. A head is
trained on its own predictions. Step 1 starts from true features at every position s of a text at
once; step j continues from the output of step j - 1 at position s + j - 1. A chain's query sees the
keys of true features up to its start s, and those of its own earlier steps.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from outdraft.distill.data.shards import TextBatch
from outdraft.distill.evaluation import Draw
from outdraft.distill.network import (
    Angles,
    AttentionProjections,
    Mlp,
    RmsNorm,
    RotaryEmbedding,
    initialize_matrices,
    rotate_halves,
)
from outdraft.distill.settings import HeadSize, TrainSettings
from outdraft.distill.target import Target
from outdraft.errors import OptionError
from outdraft.modelspec import ModelSpec
from outdraft.modelspec.head import NUM_TAPS, HeadSpec

_DRAFT_VOCAB = 4096
Chain = list[tuple[Tensor, Tensor]]  # keys and values of the steps so far


def head_spec(target: ModelSpec, size: HeadSize) -> HeadSpec:
    n = target.num_layers
    last = max(n - 1, 2)
    middle = (2 + last) // 2 if last > 3 else last - 1
    taps = size.taps or (min(2, last - 2), middle, last)
    if min(taps) < 0 or max(taps) > n:
        raise OptionError(f"the target has {n} layers, so taps lie between 0 and {n}: {taps}")
    heads, kv_heads = size.heads or target.num_heads, size.kv_heads or target.num_kv_heads
    if heads % kv_heads:
        raise OptionError(f"{heads} heads cannot share {kv_heads} kv heads; change --kv-heads")
    return HeadSpec(
        family="llama",
        num_layers=1,
        hidden_size=target.hidden_size,
        target_hidden_size=target.hidden_size,
        intermediate_size=size.intermediate or target.hidden_size,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=target.head_dim,
        vocab_size=target.vocab_size,
        draft_vocab_size=min(size.draft_vocab or _DRAFT_VOCAB, target.vocab_size),
        rms_eps=target.rms_eps,
        rope_theta=target.rope_theta,
        norm_before_residual=True,
        layer_ids=tuple(sorted(taps)),
        max_context=target.max_context,
    )


class HeadAttention(AttentionProjections):
    def forward(self, x: Tensor, angles: Angles, chain: Chain) -> Tensor:
        """x (B, S, 2·hidden) of one step. `chain` has the keys and values of the steps before,
        those of true features first; this step's are added."""
        s = x.shape[1]
        q, k, v = self.project(x)
        q, k = (
            rotate_halves(q, angles) * self._dim**-0.5,
            rotate_halves(k, angles),
        )  # (B, heads, S, D)
        chain.append((k, v))
        q = q.unflatten(1, (self._kv_heads, -1))  # (B, kv, heads per kv, S, D)
        true_k, true_v = (one[:, :, None, :s] for one in chain[0])
        scores = q @ true_k.transpose(-1, -2)  # (B, kv, per, S, S)
        ahead = torch.ones(s, s, dtype=torch.bool, device=x.device).triu_(1)
        scores = scores.masked_fill(ahead, -torch.inf)
        own = [(q * k[:, :, None, :s]).sum(-1, keepdim=True).to(scores.dtype) for k, _ in chain[1:]]
        weights = torch.cat([scores, *own], -1).softmax(-1, dtype=torch.float32).to(v.dtype)
        mixed = weights[..., :s] @ true_v
        for step, (_, earlier) in enumerate(chain[1:]):
            mixed = mixed + weights[..., s + step, None] * earlier[:, :, None, :s]
        mixed = mixed.flatten(1, 2).transpose(1, 2).flatten(2)
        return self.o_proj(mixed)  # type: ignore[no-any-return]


class HeadLayer(nn.Module):
    def __init__(self, spec: HeadSpec) -> None:
        super().__init__()
        self.input_layernorm = RmsNorm(spec.hidden_size, spec.rms_eps)
        self.hidden_norm = RmsNorm(spec.hidden_size, spec.rms_eps)
        self.self_attn = HeadAttention(spec, 2 * spec.hidden_size)
        self.post_attention_layernorm = RmsNorm(spec.hidden_size, spec.rms_eps)
        self.mlp = Mlp(spec)
        self._norm_before_residual = spec.norm_before_residual

    def forward(self, embedded: Tensor, hidden: Tensor, angles: Angles, chain: Chain) -> Tensor:
        normed = self.hidden_norm(hidden)
        residual = normed if self._norm_before_residual else hidden
        both = torch.cat([self.input_layernorm(embedded), normed], -1)
        x = residual + self.self_attn(both, angles, chain)
        return x + self.mlp(self.post_attention_layernorm(x))  # type: ignore[no-any-return]


class HeadModel(nn.Module):
    d2t: Tensor
    to_draft: Tensor
    scale: Tensor

    def __init__(self, spec: HeadSpec, taps: tuple[int, ...]) -> None:
        super().__init__()
        self.spec = spec
        self.taps = taps
        hidden = spec.hidden_size
        self.fc = nn.Linear(NUM_TAPS * spec.target_hidden_size, hidden, bias=False)
        self.layers = nn.ModuleList([HeadLayer(spec)])
        self.norm = RmsNorm(hidden, spec.rms_eps)
        self.lm_head = nn.Linear(hidden, spec.draft_vocab_size, bias=False)
        # The target's states differ a thousandfold in size between dimensions. The fc in training
        # reads them divided by their root mean square; the saved one reads them as they are.
        self.register_buffer("scale", torch.ones(NUM_TAPS * spec.target_hidden_size))
        # Draft id → target id, and back (-1: not in the draft vocabulary).
        ids = torch.arange(spec.draft_vocab_size)
        self.register_buffer("d2t", ids)
        self.register_buffer("to_draft", torch.full((spec.vocab_size,), -1), persistent=False)
        self.rotary = RotaryEmbedding(spec)
        self.set_vocabulary(ids)

    def set_vocabulary(self, ids: Tensor) -> None:
        """ids: the tokens of the target that the head can draw, ascending."""
        self.d2t = ids.to(self.d2t.device)
        self.to_draft.fill_(-1)
        self.to_draft[self.d2t] = torch.arange(len(ids), device=self.d2t.device)

    @property
    def saved_fc(self) -> Tensor:
        return self.fc.weight / self.scale

    @torch.no_grad()
    def initialize(self, target: Target, batch: TextBatch) -> None:
        """The last tap passes through fc, and the lm_head is the target's: the head starts by
        repeating the target's own prediction, and learns the next one."""
        initialize_matrices(self)
        self.scale.fill_(1)
        states = self.features(batch, target)[batch.is_answer]
        self.scale.copy_(states.square().mean(0).sqrt().clamp(min=1e-6))
        size = self.spec.target_hidden_size
        if size != self.spec.hidden_size:
            return
        self.fc.weight[:, -size:] += torch.eye(size, device=self.fc.weight.device)
        # The head's norms start at 1: the target's last norm and the scale go into the lm_head.
        usual = states[:, -size:].square().mean(1).sqrt().median()
        columns = target.network.model.norm.weight.float() * self.scale[-size:] / usual
        self.lm_head.weight.copy_(target.network.head[self.d2t].float() * columns)

    def features(self, batch: TextBatch, target: Target) -> Tensor:
        """(B, T, 3·hidden): the target's tapped states, divided by their usual size."""
        with torch.no_grad():
            _, tapped = target.network(batch.tokens, taps=self.taps)
            return torch.cat(tapped, -1).float() / self.scale

    def unroll(self, batch: TextBatch, target: Target, num_steps: int) -> list[Tensor]:
        """Each step's normed outputs: [j][b, s] predicts token s + 2 + j of text b.

        Each step has one chain fewer than the one before, whose next token is past the end.
        """
        tokens = batch.tokens
        width = tokens.shape[1]
        # float32, as the engine computes it.
        hidden = self.fc(self.features(batch, target)[:, : width - 2]).float()
        chain: Chain = []
        outputs = []
        for j in range(min(num_steps, width - 2)):
            size = width - 2 - j
            embedded = F.embedding(tokens[:, j + 1 : j + 1 + size], target.network.embedding)
            angles = self.rotary(torch.arange(j, j + size, device=tokens.device)[None])
            hidden = self.layers[0](embedded.float(), hidden[:, :size], angles, chain)
            outputs.append(self.norm(hidden))
        return outputs

    def loss(self, batch: TextBatch, target: Target, settings: TrainSettings) -> Tensor:
        """Mean over steps, weighted by `decay`, of the mean over chains that predict an answer of
        the cross entropy with those of the target's likeliest tokens that the head can draw."""
        hard = settings.hard
        shape = (*batch.tokens.shape, batch.top_ids.shape[1])
        ids = batch.tokens.new_zeros(shape)
        probs = torch.zeros(shape, device=batch.tokens.device)
        draft_ids = self.to_draft[batch.top_ids]
        ids[batch.is_answer] = draft_ids.clamp(min=0)
        probs[batch.is_answer] = batch.top_logprobs.exp() * (draft_ids >= 0)
        total = torch.zeros((), device=batch.tokens.device)
        weight = 0.0
        for j, outputs in enumerate(self.unroll(batch, target, settings.unroll)):
            rows = batch.is_answer[:, j + 2 :]
            step_probs = probs[:, j + 2 :][rows]
            # In one pass over the logits: they are most of the memory that a step moves.
            logprobs = F.log_softmax(self.lm_head(outputs[rows]), 1, dtype=torch.float32)
            logprobs = logprobs.gather(1, ids[:, j + 2 :][rows])  # (A, top)
            soft = -(step_probs * logprobs).sum(1)
            best = -logprobs[:, 0] * (step_probs[:, 0] > 0)
            step = ((1 - hard) * soft + hard * best).sum() / max(len(soft), 1)
            total = total + settings.decay**j * step
            weight += settings.decay**j
        return total / max(weight, 1e-9)

    def guesses(self, batch: TextBatch, target: Target, num_steps: int, draw: Draw) -> Tensor:
        """See `evaluation.Drafter`."""
        guessed = torch.full((num_steps, *batch.tokens.shape), -1, device=batch.tokens.device)
        numbers = batch.is_answer.flatten().cumsum(0).view_as(batch.is_answer) - 1
        for j, outputs in enumerate(self.unroll(batch, target, num_steps)):
            rows = batch.is_answer[:, j + 2 :]
            logits = self.lm_head(outputs[rows]).float()
            guessed[j, :, j + 2 :][rows] = draw(logits, numbers[:, j + 2 :][rows], self.d2t)
        return guessed


def choose_vocabulary(frequencies: Tensor, size: int, always: tuple[int, ...]) -> Tensor:
    """The ids of the most frequent tokens and of `always`, ascending."""
    counts = frequencies.clone()
    counts[list(always)] = counts.max() + 1
    return counts.topk(min(size, len(counts))).indices.sort().values
