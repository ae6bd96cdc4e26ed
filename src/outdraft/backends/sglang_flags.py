"""A Speculation as SGLang's flags."""

from __future__ import annotations

import json

from outdraft.backends.backend import Serving
from outdraft.backends.model_names import model_name
from outdraft.backends.sglang_found import Found
from outdraft.errors import OptionError, unknown_choice
from outdraft.speculation import WITH_DRAFT, Speculation

_ALGORITHMS = {"ngram": "NGRAM", "draft_model": "STANDALONE", "eagle": "EAGLE3"}
_TRIE_DEPTH = 18  # its default: matched and drafted tokens together


def speculative_flags(
    speculation: Speculation, serving: Serving, found: Found
) -> tuple[list[str], list[str]]:
    """The flags and what to know about them. OptionError for what SGLang cannot do."""
    if speculation.method not in _ALGORITHMS:
        raise unknown_choice("method of SGLang", speculation.method, _ALGORITHMS)
    notes: list[str] = []
    steps = max((k for _, _, k in adaptive_bands(speculation)), default=speculation.k)
    flags = [
        "--speculative-algorithm", _ALGORITHMS[speculation.method],
        "--speculative-num-steps", str(steps),
        "--speculative-num-draft-tokens", str(steps + 1),  # the round's own token is one of them
    ]  # fmt: skip
    if speculation.method in WITH_DRAFT:
        assert speculation.draft is not None
        flags += ["--speculative-draft-model-path", model_name(speculation.draft, notes)]
        flags += ["--speculative-eagle-topk", "1"]
        flags += _draft_quantization(speculation, serving)
        if speculation.draft_tensor_parallel_size not in (None, serving.tensor_parallel_size):
            raise OptionError(
                f"draft_tensor_parallel_size is {speculation.draft_tensor_parallel_size}; SGLang "
                f"runs a draft on as many devices as its target, {serving.tensor_parallel_size}"
            )
    else:
        flags += _ngram(speculation, notes)
    flags += _rule(speculation, found, notes)
    if speculation.schedule:
        flags += _adaptive(speculation)
    missing = next((f for f in flags if f.startswith("--") and not found.has(f)), None)
    if missing is not None:
        raise OptionError(
            f"SGLang {found.installed.version} has no {missing}; use a newer SGLang, or a "
            "speculation without it"
        )
    return flags, notes


def adaptive_bands(speculation: Speculation) -> tuple[tuple[int, int, int], ...]:
    return tuple((a, b, min(k, speculation.k)) for a, b, k in speculation.schedule)


def adaptive_config(speculation: Speculation) -> str:
    """The file for --speculative-adaptive-config: one length per band, so nothing adapts in it."""
    bands = [
        f' "{start}": {json.dumps({"candidate_steps": [k]})}'
        for start, _, k in adaptive_bands(speculation)
    ]
    return "{\n" + ",\n".join(bands) + "\n}\n"


def _ngram(speculation: Speculation, notes: list[str]) -> list[str]:
    notes.append(
        f"prompt_lookup_min {speculation.prompt_lookup_min} and prompt_lookup_max "
        f"{speculation.prompt_lookup_max} have no flag: SGLang matches what it finds, in the texts "
        "of all requests so far, so prompts that come twice flatter it"
    )
    # Breadth 1 makes its tree a chain of k tokens, which is what k means everywhere else.
    flags = ["--speculative-ngram-min-bfs-breadth", "1", "--speculative-ngram-max-bfs-breadth", "1"]
    depth = speculation.prompt_lookup_max + speculation.k
    if depth > _TRIE_DEPTH:
        flags += ["--speculative-ngram-max-trie-depth", str(depth)]
    return flags


def _rule(speculation: Speculation, found: Found, notes: list[str]) -> list[str]:
    if speculation.rule == "typical":
        raise OptionError(
            "SGLang has no typical acceptance; its own lossy rule is a fixed probability, "
            "--speculative-accept-threshold-single"
        )
    if speculation.rule == "coupled":
        notes.append(
            "coupled by seed is outdraft's own; here the target's distribution decides about the "
            "draft's tokens: the same distribution of texts, not the same text"
        )
        return []
    if speculation.method == "draft_model":
        raise OptionError(
            "SGLang has no rejection rule for a draft model, only for EAGLE heads; use coupled"
        )
    return ["--speculative-use-rejection-sampling"] if speculation.method == "eagle" else []


def _draft_quantization(speculation: Speculation, serving: Serving) -> list[str]:
    if speculation.quantization != "none":
        raise OptionError(
            f"SGLang does not make {speculation.quantization} drafts while it loads; name a draft "
            "whose files are quantized (AWQ, GPTQ, compressed-tensors), quantization none"
        )
    if serving.quantization not in (None, "none"):  # else it would take the target's
        return ["--speculative-draft-model-quantization", "unquant"]
    return []


def _adaptive(speculation: Speculation) -> list[str]:
    if speculation.method != "eagle":
        raise OptionError(
            f"SGLang has a draft length by batch size for EAGLE heads only, not for "
            f"{speculation.method}; leave the schedule out"
        )
    return ["--speculative-adaptive"]
