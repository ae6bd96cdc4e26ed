"""Layers for multi-token prediction (MTP), which some checkpoints hold beside the model itself.

A layer reads the target's last hidden state and the embedding of the next token, fused by a matrix,
and guesses the token after it. It has a cache of its own; embedding and output are the target's,
of which DeepSeek's files hold a second copy that engines do not load.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from outdraft.modelspec.spec import MAX_LAYERS, ModelSpec

_KEYS = ("num_nextn_predict_layers", "mtp_num_hidden_layers")


def num_mtp_layers(config: Mapping[str, Any]) -> int:
    """Of any config.json, also of a family that is not known here; 0 where it names none."""
    text = config.get("text_config")
    for part in (config, text if isinstance(text, dict) else {}):
        for key in _KEYS:
            value = part.get(key)
            if isinstance(value, int) and 0 < value <= MAX_LAYERS:
                return int(value)
    return 0


@dataclass(frozen=True, slots=True)
class MtpSpec(ModelSpec):
    """The layers alone, each with the matrix that fuses its inputs."""


def mtp_spec(target: ModelSpec) -> MtpSpec:
    """Of a target that has such layers. They are like its last ones."""
    same = {each.name: getattr(target, each.name) for each in fields(ModelSpec)}
    experts = None if target.experts is None else replace(target.experts, dense_layers=0)
    own: dict[str, Any] = {
        "num_layers": target.mtp_layers,
        "mtp_layers": 0,
        "experts": experts,
        "windows": (),
        "rope_layers": (),
        "num_parameters": 0,
        "parameter_bytes": 0,
        "bytes_by_dtype": {},
    }
    return MtpSpec(**{**same, **own})
