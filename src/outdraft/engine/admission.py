"""Whether a request can be served at all."""

from __future__ import annotations

from collections.abc import Sequence as Seq

from outdraft.engine.sequence import SamplingParams
from outdraft.errors import OptionError, RequestError


def check_request(
    tokens: Seq[int],
    params: SamplingParams,
    k: int | None,
    *,
    vocab_size: int,
    max_context: int,
    context_limit: str,
) -> None:
    """`context_limit` says what set `max_context`, where that is not the model itself."""
    if not tokens:
        raise RequestError("the prompt is empty; give at least one token")
    wrong = next((token for token in tokens if not 0 <= token < vocab_size), None)
    if wrong is not None:
        raise RequestError(f"token id {wrong} is outside the vocabulary of {vocab_size}")
    if len(tokens) >= max_context:
        raise RequestError(
            f"the prompt has {len(tokens)} tokens and the context holds {max_context}"
            f"{context_limit}; shorten it by at least {len(tokens) - max_context + 1} "
            "(one token must be left to write)"
        )
    for name, ids in (("logit_bias", params.logit_bias), ("stop_token_ids", params.stop_token_ids)):
        outside = next((token for token in ids if not 0 <= token < vocab_size), None)
        if outside is not None:
            raise OptionError(f"{name}: {outside} is outside the vocabulary of {vocab_size}")
    if k is not None and k < 0:
        raise OptionError(f"k must not be negative, got {k}")
