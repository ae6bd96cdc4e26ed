"""Makes a draft to train: with fresh weights, or with those of an earlier draft."""

from pathlib import Path

import torch
from torch import Tensor, nn

from outdraft.distill.data.shards import Corpus
from outdraft.distill.settings import HeadSize, ModelSize
from outdraft.distill.target import Target
from outdraft.distill.training.head_model import HeadModel, choose_vocabulary, head_spec
from outdraft.distill.training.small_model import SmallModel, model_spec
from outdraft.engine.models.head import read_lm_head
from outdraft.engine.models.weights import SafetensorsWeights
from outdraft.errors import OptionError
from outdraft.modelspec import read_head
from outdraft.modelspec.head import COLUMNS, LM_HEAD, canonical_name

AnyDraft = SmallModel | HeadModel
_SCALE_TEXTS = 16  # texts from which the usual size of the target's states is computed


def make_draft(
    target: Target,
    corpus: Corpus,
    size: ModelSize | HeadSize,
    *,
    seed: int,
    start: Path | None = None,
) -> AnyDraft:
    """A fresh draft on the target's device, or one with the weights of the draft in `start`."""
    if start is not None and not start.is_dir():
        raise OptionError(f"no such folder of an earlier draft: {start}")
    torch.manual_seed(seed)
    draft: AnyDraft
    if isinstance(size, ModelSize):
        draft = SmallModel(model_spec(target.spec, size)).to(target.device)
        draft.initialize(target)
    else:
        if start is not None:  # sizes that are not given are the earlier head's
            earlier = read_head(start)
            size = HeadSize(
                intermediate=size.intermediate or earlier.intermediate_size,
                heads=size.heads or earlier.num_heads,
                kv_heads=size.kv_heads or earlier.num_kv_heads,
                draft_vocab=size.draft_vocab or earlier.draft_vocab_size,
                taps=size.taps or earlier.layer_ids,
            )
        spec = head_spec(target.spec, size)
        draft = HeadModel(spec, spec.taps(target.spec.num_layers)).to(target.device)
        frequencies = corpus.frequencies(spec.vocab_size)
        draft.set_vocabulary(choose_vocabulary(frequencies, spec.draft_vocab_size, target.eos_ids))
        some = range(min(_SCALE_TEXTS, len(corpus)))
        draft.initialize(target, corpus.batch(some, target.device))
    if start is not None:
        load_weights(draft, start, target)
    return draft


def load_weights(draft: AnyDraft, folder: Path, target: Target) -> None:
    """Loads an earlier draft of the same sizes; a head may be larger than the earlier one."""
    weights = SafetensorsWeights(folder)
    module: nn.Module
    if isinstance(draft, HeadModel):
        module, state = draft, _grow(read_head_tensors(weights, target.network.embedding), draft)
    else:
        module, state = draft.network, {name: weights.get(name) for name in weights.names()}
    state = {name: t.float() if t.is_floating_point() else t for name, t in state.items()}
    try:
        module.load_state_dict(state)
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise OptionError(f"{folder} is a draft of other sizes: {reason}") from None


def read_head_tensors(weights: SafetensorsWeights, embedding: Tensor) -> dict[str, Tensor]:
    """A head's tensors by name; an lm_head stored as a difference is added to the embedding."""
    state = {canonical_name(name): weights.get(name) for name in weights.names()}
    vocabulary = draft_vocabulary(state).to(embedding.device)
    state[LM_HEAD] = read_lm_head(weights, vocabulary, embedding.__getitem__)
    state.pop(COLUMNS, None)
    return state


def draft_vocabulary(tensors: dict[str, Tensor]) -> Tensor:
    """The target's id of every draft token, from a head's `d2t`, which holds differences."""
    size = len(tensors[LM_HEAD])
    shifts = tensors.get("d2t", torch.zeros(size, dtype=torch.long)).cpu()
    return torch.arange(size) + shifts


def _grow(state: dict[str, Tensor], head: HeadModel) -> dict[str, Tensor]:
    """An earlier head's weights in the sizes of `head`.

    Draft tokens that are new start from the target's lm_head, new units of the feed-forward part
    with an output of zero.
    """
    device = head.scale.device
    earlier = draft_vocabulary(state).to(device)
    state = {name: t.to(device) for name, t in state.items() if name not in ("t2d", "d2t")}
    if len(earlier) == len(head.d2t):
        head.set_vocabulary(earlier)  # texts may have been added since: its vocabulary stays
    else:
        rows, where = head.lm_head.weight.detach().clone(), head.to_draft[earlier]
        learned, kept = state[LM_HEAD].float()[where >= 0], where[where >= 0]
        # The target's rows, scaled in each dimension as the earlier head's are.
        initial = rows[kept]
        rows *= (learned * initial).sum(0) / initial.square().sum(0).clamp(min=1e-9)
        rows[kept] = learned
        state[LM_HEAD] = rows
    mlp = head.layers[0].mlp
    for name in ("gate_proj", "up_proj", "down_proj"):
        key, values = f"layers.0.mlp.{name}.weight", getattr(mlp, name).weight.detach().clone()
        learned = state[key].float()
        if name == "down_proj":
            values.zero_()
        if all(old <= new for old, new in zip(learned.shape, values.shape, strict=True)):
            values[: learned.shape[0], : learned.shape[1]] = learned
            state[key] = values
    state["fc.weight"] = state["fc.weight"].float() * head.scale
    return {**state, "d2t": head.d2t, "scale": head.scale}
