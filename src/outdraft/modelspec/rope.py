"""Rotary position embedding: from a spec to the inverse frequencies, in float64.

Pair i of a head turns by ``position * inverse_frequency[i]``. Long-context
models stretch the slow pairs, and they write that down in three ways:

- ``linear``   every frequency divided by one factor;
- ``llama3``   slow pairs divided, fast pairs kept, a smooth ramp between;
- ``factors``  one explicit divisor per pair (how GGUF stores the llama3 rule).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from outdraft.errors import ModelError

KINDS = ("default", "linear", "llama3")


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """How the frequencies of a long-context model differ from the plain ones."""

    kind: Literal["linear", "llama3", "factors"]
    factor: float = 1.0
    low_freq_factor: float = 1.0  # llama3: wavelengths over original_context/this are divided
    high_freq_factor: float = 4.0  # llama3: wavelengths under original_context/this are kept
    original_context: int = 8192
    factors: tuple[float, ...] = ()  # factors: one divisor for each pair


class _Rotary(Protocol):
    """The three fields of ModelSpec that the frequencies depend on."""

    @property
    def head_dim(self) -> int: ...
    @property
    def rope_theta(self) -> float: ...
    @property
    def rope_scaling(self) -> RopeScaling | None: ...


def inverse_frequencies(spec: _Rotary) -> npt.NDArray[np.float64]:
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


def read_rope(
    config: Mapping[str, Any], *, default_theta: float, source: object
) -> tuple[float, RopeScaling | None]:
    """(theta, scaling) from a config.json, in its old form and its new one.

    Old: ``rope_theta`` and ``rope_scaling`` side by side. New: both inside
    ``rope_parameters``.
    """
    inside: Mapping[str, Any] = config.get("rope_parameters") or config.get("rope_scaling") or {}
    theta = float(inside.get("rope_theta") or config.get("rope_theta") or default_theta)
    kind = inside.get("rope_type") or inside.get("type") or "default"
    if kind not in KINDS:
        raise ModelError(
            f"unsupported rope scaling {kind!r} in {source}; supported: {', '.join(KINDS)}"
        )
    part = inside.get("partial_rotary_factor") or config.get("partial_rotary_factor") or 1.0
    if part != 1.0:
        raise ModelError(
            f"unsupported partial rotary embedding (factor {part}) in {source}; supported: 1.0"
        )
    if kind == "default":
        return theta, None
    if kind == "linear":
        return theta, RopeScaling("linear", factor=float(inside["factor"]))
    return theta, RopeScaling(
        "llama3",
        factor=float(inside["factor"]),
        low_freq_factor=float(inside["low_freq_factor"]),
        high_freq_factor=float(inside["high_freq_factor"]),
        original_context=int(
            inside.get("original_max_position_embeddings") or config["max_position_embeddings"]
        ),
    )
