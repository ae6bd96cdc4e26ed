"""Rotary position embedding: read from a config.json, and made into inverse frequencies (float64).

Pair i of an attention head turns by ``position * inverse_frequency[i]``.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from outdraft.errors import ModelError
from outdraft.modelspec.spec import DecoderSpec, RopeScaling

_LLAMA3_FACTORS = ("factor", "low_freq_factor", "high_freq_factor")


def inverse_frequencies(spec: DecoderSpec) -> npt.NDArray[np.float64]:
    """The angle, in radians per position, of each of the head_dim/2 pairs."""
    exponents = np.arange(0, spec.head_dim, 2, dtype=np.float64) / spec.head_dim
    plain: npt.NDArray[np.float64] = 1.0 / spec.rope_theta**exponents  # (head_dim/2,)
    scaling = spec.rope_scaling
    if scaling is None:
        return plain
    if scaling.kind == "linear":
        return plain / scaling.factor
    if scaling.kind == "factors":
        return plain / np.asarray(scaling.factors, dtype=np.float64)
    return _llama3(plain, scaling)


def _llama3(plain: npt.NDArray[np.float64], scaling: RopeScaling) -> npt.NDArray[np.float64]:
    # How many full turns a pair makes within the original context decides:
    # fewer than low_freq_factor: divided; more than high_freq_factor: kept.
    turns = scaling.original_context * plain / (2 * math.pi)
    span = scaling.high_freq_factor - scaling.low_freq_factor
    keep = np.clip((turns - scaling.low_freq_factor) / span, 0.0, 1.0)
    result: npt.NDArray[np.float64] = keep * plain + (1 - keep) * plain / scaling.factor
    return result


def read_rope(config: Mapping[str, Any]) -> tuple[float, RopeScaling | None, tuple[str, ...]]:
    """(theta, scaling, features that scaling cannot express) from a config.json.

    Old form: ``rope_theta`` and ``rope_scaling`` side by side. New form: both inside
    ``rope_parameters``.
    """
    inside: Mapping[str, Any] = config.get("rope_parameters") or config.get("rope_scaling") or {}
    theta = float(inside.get("rope_theta") or config.get("rope_theta") or 10_000.0)
    kind = inside.get("rope_type") or inside.get("type") or "default"
    features: tuple[str, ...] = ()
    rotated = inside.get("partial_rotary_factor") or config.get("partial_rotary_factor") or 1.0
    if rotated != 1.0:
        features += (f"partial rotary embedding, factor {rotated} (supported: 1.0)",)
    scaling = None
    if kind == "linear":
        scaling = RopeScaling("linear", factor=float(inside["factor"]))
    elif kind == "llama3":
        factors: dict[str, Any] = {key: float(inside[key]) for key in _LLAMA3_FACTORS}
        original = inside.get("original_max_position_embeddings")
        context = int(original or config["max_position_embeddings"])
        scaling = RopeScaling("llama3", **factors, original_context=context)
    elif kind != "default":
        features += (f"rope scaling {kind!r} (supported: default, linear, llama3)",)
    return theta, scaling, features


def rope_config(scaling: RopeScaling | None) -> dict[str, Any]:
    """The values of ``rope_scaling`` in a config.json; ModelError for what it cannot express."""
    if scaling is None:
        return {"rope_type": "default"}
    if scaling.kind == "linear":
        return {"rope_type": "linear", "factor": scaling.factor}
    if scaling.kind == "factors":
        raise ModelError(
            "config.json cannot express one rope factor for each pair; use the unquantized model's "
            "own folder"
        )
    return {
        "rope_type": "llama3",
        **{key: getattr(scaling, key) for key in _LLAMA3_FACTORS},
        "original_max_position_embeddings": scaling.original_context,
    }
