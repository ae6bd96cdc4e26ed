"""A Speculation as SGLang's flags."""

import json
from pathlib import Path

from outdraft.backends.backend import Serving
from outdraft.backends.checks import MTP_NOTE, folder_name
from outdraft.backends.flags import Flag, make_flags
from outdraft.backends.installation import Installation
from outdraft.errors import OptionError
from outdraft.modelspec.head import is_head
from outdraft.speculation import LOOKED_UP, Speculation
from outdraft.whole_file import read_json

_ALGORITHMS = {
    "ngram": "NGRAM",
    "draft_model": "STANDALONE",
    "eagle": "EAGLE3",
    "mtp": "NEXTN",
}
EAGLES = ("eagle", "mtp")  # methods that run as EAGLE does
_TRIE_DEPTH = 18  # its default: matched and drafted tokens together


def speculative_flags(
    speculation: Speculation, serving: Serving, installation: Installation, notes: list[str]
) -> list[Flag]:
    """The flags; `notes` gets what to know about them. OptionError for what SGLang cannot do."""
    steps = max((k for _, _, k in _bands(speculation)), default=speculation.k)
    settings: dict[str, object] = {
        "--speculative-algorithm": _ALGORITHMS[speculation.method],
        "--speculative-num-steps": steps,
        "--speculative-num-draft-tokens": steps + 1,
    }
    if speculation.method in LOOKED_UP:
        settings |= _ngram(speculation, notes)
    else:
        settings |= _draft(speculation, serving, notes)
    samples_drafts = speculation.rule == "rejection" and speculation.method in EAGLES
    settings["--speculative-use-rejection-sampling"] = samples_drafts
    settings["--speculative-adaptive"] = bool(speculation.schedule)
    if speculation.rule == "coupled":
        notes.append(
            "coupled by seed is outdraft's own; here the target's distribution decides about the "
            "draft's tokens: the same distribution of texts, not the same text"
        )
    flags = make_flags(settings)
    missing = next((flag.name for flag in flags if not installation.has(flag.name)), None)
    if missing is not None:
        raise OptionError(
            f"SGLang {installation.version} has no {missing}; use a newer SGLang, or a "
            "speculation without it"
        )
    return flags


def adaptive_config(speculation: Speculation) -> str:
    """The file for --speculative-adaptive-config: one length per band, so nothing adapts in it."""
    bands = [
        f' "{start}": {json.dumps({"candidate_steps": [k]})}' for start, _, k in _bands(speculation)
    ]
    return "{\n" + ",\n".join(bands) + "\n}\n"


def _bands(speculation: Speculation) -> tuple[tuple[int, int, int], ...]:
    return tuple((a, b, min(k, speculation.k)) for a, b, k in speculation.schedule)


def _draft(speculation: Speculation, serving: Serving, notes: list[str]) -> dict[str, object]:
    devices = serving.tensor_parallel_size * serving.hosts
    if speculation.draft_tensor_parallel_size not in (None, devices):
        raise OptionError(
            f"draft_tensor_parallel_size is {speculation.draft_tensor_parallel_size}; SGLang "
            f"runs a draft on as many devices as its target, {devices}"
        )
    if speculation.draft is None:
        notes.append(MTP_NOTE)
        return {"--speculative-eagle-topk": 1}
    draft = folder_name(speculation.draft, notes)
    _check_head(draft)
    is_quantized = serving.quantization not in (None, "none")
    return {
        "--speculative-draft-model-path": draft,
        "--speculative-eagle-topk": 1,
        "--speculative-draft-model-quantization": "unquant" if is_quantized else None,
    }


def _check_head(draft: str) -> None:
    """SGLang computes heads in one way, and reads the first of their layouts only."""
    path = Path(draft)
    if not path.is_dir() or not is_head(path):
        return
    config = read_json(path / "config.json")
    is_nested = "transformer_layer_config" in config
    if config.get("norm_before_residual", is_nested):
        raise OptionError(
            f"SGLang does not run the head {draft}: it goes on with the hidden state as it is, "
            "this head was trained with the normed one (norm_before_residual); use vllm or outdraft"
        )
    if is_nested:
        raise OptionError(
            f"SGLang does not read the head {draft}: its config.json is in the layout of "
            "speculators; use vllm or outdraft"
        )


def _ngram(speculation: Speculation, notes: list[str]) -> dict[str, object]:
    notes.append(
        f"prompt_lookup_min {speculation.prompt_lookup_min} and prompt_lookup_max "
        f"{speculation.prompt_lookup_max} have no flag: SGLang matches what it finds, in the texts "
        "of all requests so far, so prompts that come twice flatter it"
    )
    depth = speculation.prompt_lookup_max + speculation.k
    # Breadth 1 makes its tree a chain of k tokens, which is what k means everywhere else.
    return {
        "--speculative-ngram-min-bfs-breadth": 1,
        "--speculative-ngram-max-bfs-breadth": 1,
        "--speculative-ngram-max-trie-depth": depth if depth > _TRIE_DEPTH else None,
    }
