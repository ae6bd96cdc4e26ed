"""Whether a draft can propose for a target, and how well the two fit.

What no engine could run is a PairingError; everything else is a finding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from outdraft.errors import PairingError
from outdraft.plan.architecture import Head
from outdraft.plan.findings import OK, UNKNOWN, WARN, Finding, size_ratio_finding
from outdraft.plan.models import Model
from outdraft.plan.sizes import active_parameters
from outdraft.plan.vocabulary import Vocabulary, first_difference, read_vocabulary

# Embeddings of one tokenizer are padded by up to so many rows from size to size (Qwen2.5).
MAX_PADDING = 128


@dataclass(frozen=True, slots=True)
class Pairing:
    size_ratio: float | None  # parameters a token passes in the target over those in the draft
    same_family: bool | None
    same_tokenizer: bool | None  # None: nothing to compare
    findings: tuple[Finding, ...]


def check_target(target: Model) -> None:
    if target.architecture.head is not None:
        raise PairingError(
            f"{target.name} is a draft head, not a target; give it with --draft and the model it "
            "was trained for with --target"
        )


def pair(target: Model, draft: Model, max_model_len: int) -> Pairing:
    """Check a draft against its target; raises PairingError when they cannot work together."""
    head = draft.architecture.head
    check_target(target)
    context = _context(draft, max_model_len)
    if head is not None:
        found = (*_head_findings(target, draft, head), context)
        return Pairing(None, None, True, found)
    same, vocabulary = _vocabulary(target, draft)
    ratio = active_parameters(target.architecture) / active_parameters(draft.architecture)
    same_family = target.architecture.family == draft.architecture.family
    found = (*vocabulary, context, _family(target, draft), size_ratio_finding(ratio))
    return Pairing(ratio, same_family, same, found)


def _vocabulary(target: Model, draft: Model) -> tuple[bool | None, list[Finding]]:
    ours, theirs = _read(target), _read(draft)
    rows = target.architecture.vocab_size, draft.architecture.vocab_size
    if ours is not None and theirs is not None:
        difference = first_difference(ours, theirs)
        if difference is not None:
            raise _cannot(target, draft, difference)
        equal = Finding("vocabulary", OK, f"{len(ours.tokens)} tokens, all equal", "equal")
        return True, [equal, *_rows(rows), *_special(ours, theirs)]
    if target.tokenizer is not None and draft.tokenizer is not None:
        if target.tokenizer != draft.tokenizer:
            raise _cannot(
                target, draft,
                f"the target has the tokenizer {target.tokenizer}, the draft {draft.tokenizer}",
            )  # fmt: skip
        equal = Finding("vocabulary", OK, f"both {target.tokenizer} (by the table)", "equal")
        return True, [equal, *_rows(rows)]
    if abs(rows[0] - rows[1]) > MAX_PADDING:
        raise _cannot(target, draft, f"the target has {rows[0]} tokens, the draft {rows[1]}")
    unknown = Finding(
        "vocabulary",
        UNKNOWN,
        f"{rows[0]} and {rows[1]} rows",
        "equal",
        "no tokenizer files for both: give folders or .gguf files to compare every token",
    )
    return None, [unknown, *_rows(rows)]


def _read(model: Model) -> Vocabulary | None:
    return None if model.path is None else read_vocabulary(model.path)


def _cannot(target: Model, draft: Model, why: str) -> PairingError:
    return PairingError(
        f"{draft.name} cannot draft for {target.name}: {why}; choose a draft with the target's "
        "tokenizer (--suggest lists some)"
    )


def _rows(rows: tuple[int, int]) -> Iterator[Finding]:
    if rows[0] != rows[1]:
        yield Finding(
            "embedding_rows",
            WARN,
            f"{rows[0]} and {rows[1]}",
            "equal",
            "padded differently: llama.cpp and outdraft do not mind, vLLM refuses such a draft "
            "model unless use_heterogeneous_vocab is set",
        )


def _special(ours: Vocabulary, theirs: Vocabulary) -> Iterator[Finding]:
    differing = sorted(ours.special ^ theirs.special)
    named = [
        f"{name} {ours.named.get(name)!r} and {theirs.named.get(name)!r}"
        for name in sorted(ours.named.keys() | theirs.named.keys())
        if ours.named.get(name) != theirs.named.get(name)
    ]
    told = [*named, *([f"{differing[0]!r} is special in one alone"] if differing else [])]
    yield Finding(
        "special_tokens",
        WARN if told else OK,
        "; ".join(told) or f"{len(ours.special)}, all equal",
        "equal",
        "the draft was made for other turns: it guesses worse where they end" if told else "",
    )
    if ours.chat_template is None and theirs.chat_template is None:
        return
    same = ours.chat_template == theirs.chat_template
    missing = ours.chat_template is None or theirs.chat_template is None
    yield Finding(
        "chat_template",
        OK if same else WARN,
        "equal" if same else "only one has one" if missing else "different",
        "equal",
        ""
        if same
        else "the target's is used for both; a draft tuned on another guesses worse in chats",
    )


def _context(draft: Model, max_model_len: int) -> Finding:
    longest = draft.architecture.max_context
    short = longest < max_model_len
    return Finding(
        "context",
        WARN if short else OK,
        f"the draft reads {longest} tokens, texts have up to {max_model_len}",
        "at least --max-model-len",
        f"beyond {longest} tokens drafting stops or goes wrong, in vLLM for the whole batch"
        if short
        else "",
    )


def _family(target: Model, draft: Model) -> Finding:
    ours, theirs = target.architecture.family, draft.architecture.family
    same = ours == theirs
    return Finding(
        "family",
        OK if same else WARN,
        ours if same else f"{ours} and {theirs}",
        "same",
        "" if same else "a draft of another family was trained otherwise and guesses worse",
    )


def _head_findings(target: Model, draft: Model, head: Head) -> Iterator[Finding]:
    shape = target.architecture
    if head.target_hidden_size != shape.hidden_size:
        raise PairingError(
            f"{draft.name} cannot draft for {target.name}: the head reads hidden states of "
            f"{head.target_hidden_size} values, the target's have {shape.hidden_size}; take a "
            "head that was trained for this target"
        )
    if draft.architecture.vocab_size != shape.vocab_size:
        raise PairingError(
            f"{draft.name} cannot draft for {target.name}: the head knows "
            f"{draft.architecture.vocab_size} tokens, the target {shape.vocab_size}; take a head "
            "that was trained for this target"
        )
    taps = head.taps_of(shape.num_layers)
    beyond = [tap for tap in taps if not 0 <= tap < shape.num_layers]
    if beyond:
        raise PairingError(
            f"{draft.name} cannot draft for {target.name}: the head taps layer {beyond[0]}, the "
            f"target has the layers 0 to {shape.num_layers - 1}; take a head that was trained "
            "for this target"
        )
    yield Finding("hidden_size", OK, str(shape.hidden_size), "equal")
    if taps:
        where = ", ".join(map(str, taps)) + (" (the engine's default)" if head.taps is None else "")
        yield Finding("tapped_layers", OK, where, f"below {shape.num_layers}")
    share = head.draft_vocab_size / shape.vocab_size
    yield Finding(
        "draft_vocabulary", OK, f"{head.draft_vocab_size} of {shape.vocab_size} tokens",
        "part of the target's",
        "" if share == 1 else "other tokens are never proposed",
    )  # fmt: skip
