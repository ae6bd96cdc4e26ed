"""From sizes to a draft that can be trained, and from earlier files to one that goes on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from outdraft.distill.head_draft import Head, choose_vocabulary
from outdraft.distill.shards import Corpus
from outdraft.distill.small_model import ModelSize, SmallModel, model_spec
from outdraft.distill.target import Target
from outdraft.engine.models.head import read_lm_head
from outdraft.engine.models.weights import SafetensorsWeights
from outdraft.errors import OptionError
from outdraft.modelspec import ModelSpec
from outdraft.modelspec.head import COLUMNS, LM_HEAD, NUM_TAPS, HeadSpec, canonical_name, read_head

_DRAFT_VOCAB = 4096
_SCALE_TEXTS = 16  # texts that show how large the target's states are


@dataclass(frozen=True, slots=True)
class HeadSize:
    intermediate: int | None = None  # None: as wide as the target is
    heads: int | None = None  # None: the target's
    kv_heads: int | None = None
    draft_vocab: int | None = None  # None: 4096
    taps: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.taps is not None and len(set(self.taps)) != NUM_TAPS:
            raise OptionError(f"a head taps {NUM_TAPS} different layers, got {list(self.taps)}")
        for name in ("intermediate", "heads", "kv_heads", "draft_vocab"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise OptionError(f"{name} must be at least 1, got {value}")


def as_before(size: HeadSize, folder: Path) -> HeadSize:
    """What was not asked for is as it was in an earlier head."""
    had = read_head(folder)
    return HeadSize(
        intermediate=size.intermediate or had.intermediate_size,
        heads=size.heads or had.num_heads,
        kv_heads=size.kv_heads or had.num_kv_heads,
        draft_vocab=size.draft_vocab or had.draft_vocab_size,
        taps=size.taps or had.layer_ids,
    )


def head_spec(target: ModelSpec, size: HeadSize) -> HeadSpec:
    n = target.num_layers
    taps = size.taps or default_taps(n)
    if sorted(taps)[0] < 0 or sorted(taps)[-1] > n:
        raise OptionError(f"the target has {n} layers, so taps lie between 0 and {n}: {taps}")
    heads, kv_heads = size.heads or target.num_heads, size.kv_heads or target.num_kv_heads
    if heads % kv_heads:
        raise OptionError(f"{heads} heads cannot share {kv_heads} kv heads; change --kv-heads")
    return HeadSpec(
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
        rope_scaling=None,
        norm_before_residual=True,
        layer_ids=tuple(sorted(taps)),
        max_context=target.max_context,
    )


def default_taps(num_layers: int) -> tuple[int, ...]:
    """Early, middle, and the stream that enters the last layer."""
    last = max(num_layers - 1, 2)
    return (min(2, last - 2), (2 + last) // 2 if last > 3 else last - 1, last)


def make_draft(
    kind: str,
    target: Target,
    corpus: Corpus,
    size: ModelSize | HeadSize,
    *,
    seed: int,
    start: Path | None = None,
) -> SmallModel | Head:
    """A fresh draft on the target's device, or one with the weights of `start`, a folder."""
    if start is not None and not start.is_dir():
        raise OptionError(f"no such folder of an earlier draft: {start}")
    torch.manual_seed(seed)
    draft: SmallModel | Head
    if isinstance(size, ModelSize):
        draft = SmallModel(model_spec(target.spec, size)).to(target.device)
        draft.start_from(target)
    else:
        spec = head_spec(target.spec, size if start is None else as_before(size, start))
        draft = Head(spec, spec.taps(target.spec.num_layers)).to(target.device)
        draft.choose(
            choose_vocabulary(
                corpus.frequencies(spec.vocab_size), spec.draft_vocab_size, target.eos_ids
            )
        )
        some = range(min(_SCALE_TEXTS, len(corpus)))
        draft.start_from(target, corpus.batch(some, target.device))
    if start is not None:
        take_weights(draft, start, target)
    return draft


def take_weights(draft: SmallModel | Head, folder: Path, target: Target) -> None:
    """The weights of an earlier draft of the same sizes; a head may have grown since."""
    weights = SafetensorsWeights(folder)
    if isinstance(draft, Head):
        state = _grown(plain_head(weights, target.network.embedding), draft)
    else:
        state = {name: weights.get(name) for name in weights.names()}
    state = {name: t.float() if t.is_floating_point() else t for name, t in state.items()}
    module = draft if isinstance(draft, Head) else draft.network
    try:
        module.load_state_dict(state)
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise OptionError(f"{folder} is a draft of other sizes: {reason}") from None


def plain_head(weights: SafetensorsWeights, embedding: Tensor) -> dict[str, Tensor]:
    """A head's tensors, an lm_head that is stored as a difference made whole."""
    state = {canonical_name(name): weights.get(name) for name in weights.names()}
    shifts = state.get("d2t", torch.zeros(len(state[LM_HEAD]), dtype=torch.long))
    targets = (torch.arange(len(shifts)) + shifts).to(embedding.device)
    state[LM_HEAD] = read_lm_head(weights, targets, embedding)
    state.pop(COLUMNS, None)
    return state


def _grown(state: dict[str, Tensor], head: Head) -> dict[str, Tensor]:
    """An earlier head's weights in the sizes of this one. What it lacks starts as it is here: new
    tokens as the target has them, new units of the feed-forward part with no say."""
    device = head.scale.device
    state = {name: tensor.to(device) for name, tensor in state.items()}
    state.pop("t2d", None)
    shifts = state.pop("d2t", torch.zeros(len(state[LM_HEAD]), dtype=torch.long))
    earlier = torch.arange(len(shifts), device=device) + shifts.to(device)
    if len(earlier) == len(head.d2t):
        head.choose(earlier)  # texts may have been added since: its vocabulary stays
    else:
        rows, where = head.lm_head.weight.detach().clone(), head.to_draft[earlier]
        learned, kept = state[LM_HEAD].float()[where >= 0], where[where >= 0]
        # The target's rows in the units that the earlier head's have, dimension by dimension.
        started = rows[kept]
        rows *= (learned * started).sum(0) / started.square().sum(0).clamp(min=1e-9)
        rows[kept] = learned
        state[LM_HEAD] = rows
    mlp = head.layers[0].mlp
    for name in ("gate_proj", "up_proj", "down_proj"):
        key, mine = f"layers.0.mlp.{name}.weight", getattr(mlp, name).weight.detach().clone()
        had = state[key].float()
        if name == "down_proj":
            mine.zero_()
        if all(old <= new for old, new in zip(had.shape, mine.shape, strict=True)):
            mine[: had.shape[0], : had.shape[1]] = had
            state[key] = mine
    state["fc.weight"] = state["fc.weight"].float() * head.scale
    return {**state, "d2t": head.d2t, "scale": head.scale}
