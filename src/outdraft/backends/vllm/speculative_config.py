"""A Speculation as vLLM's `--speculative-config`."""

from typing import Any

from outdraft.backends.backend import Serving
from outdraft.backends.checks import MTP_NOTE, folder_name
from outdraft.backends.installation import Installation
from outdraft.backends.vllm.installation import KEY, SUFFIX_PACKAGE
from outdraft.errors import OptionError
from outdraft.speculation import LOOKED_UP, Speculation

_METHODS = {"eagle": "eagle3"}  # where vLLM has another name
CACHED_REQUESTS = "suffix_decoding_max_cached_requests"
_MAX_NUM_SEQS = 1024  # its largest default

Config = dict[str, Any]


def speculative_config(
    speculation: Speculation, serving: Serving, installation: Installation, notes: list[str]
) -> Config:
    """The config; `notes` gets what to know about it. OptionError for what this vLLM cannot do."""
    config: Config = {
        "method": _METHODS.get(speculation.method, speculation.method),
        "num_speculative_tokens": speculation.k,
    }
    if speculation.method == "ngram":
        config["prompt_lookup_min"] = speculation.prompt_lookup_min
        config["prompt_lookup_max"] = speculation.prompt_lookup_max
    if (
        speculation.method == "suffix"
        and serving.forgets
        and installation.has(KEY + CACHED_REQUESTS)
    ):
        config[CACHED_REQUESTS] = 0
    if speculation.method == "suffix" and not installation.is_here:
        notes.append(f"suffix needs the package beside vLLM: pip install {SUFFIX_PACKAGE}==0.1.1")
    has_weights = speculation.method not in LOOKED_UP
    if has_weights and speculation.draft is not None:
        config["model"] = vllm_model(speculation.draft, notes)
        if speculation.quantization == "int8":
            config["quantization"] = "fp8"
            notes.append(
                "vLLM does not make int8 weights while it loads; fp8 takes the same memory "
                "(a draft whose files are int8 already needs no quantization here)"
            )
    elif has_weights:
        notes.append(MTP_NOTE)
    if has_weights:
        config |= _draft_devices(speculation, serving)
        # What is looked up has no probabilities: there both rules are the same.
        if speculation.rule == "rejection":
            config["draft_sample_method"] = "probabilistic"
        else:
            notes.append(
                "coupled by seed is outdraft's own; here the draft proposes its likeliest token "
                "and the target's distribution decides: the same distribution of texts, not the "
                "same text"
            )
            if installation.has(KEY + "draft_sample_method"):
                config["draft_sample_method"] = "greedy"
    elif speculation.draft_tensor_parallel_size is not None:
        notes.append(f"draft_tensor_parallel_size is left out: {speculation.method} has no draft")
    if speculation.schedule:
        # Its table ends at max_num_seqs: no band may go beyond.
        last = serving.max_num_seqs or _MAX_NUM_SEQS
        config["num_speculative_tokens_per_batch_size"] = [
            [start, max(start, min(end, last)), min(k, speculation.k)]
            for start, end, k in speculation.schedule
        ]
        notes.append("the schedule counts all requests of a step, those in prefill too")
    missing = next((key for key in config if not installation.has(KEY + key)), None)
    if missing is not None:
        raise OptionError(
            f"vLLM {installation.version} has no {missing} in --speculative-config; "
            "use a newer vLLM or leave it out"
        )
    return config


def vllm_model(name: str, notes: list[str]) -> str:
    """As vLLM finds it: a folder or a hub id."""
    model = folder_name(name, notes)
    if model.endswith(".gguf"):
        raise OptionError(
            f"vLLM does not serve GGUF files, got {model}; give a hub id or a folder, "
            "which `outdraft export` makes"
        )
    return model


def _draft_devices(speculation: Speculation, serving: Serving) -> Config:
    target, draft = serving.tensor_parallel_size, speculation.draft_tensor_parallel_size
    if draft is None:
        return {"draft_tensor_parallel_size": target} if target > 1 else {}
    if speculation.method == "draft_model" and draft != target:
        raise OptionError(
            f"draft_tensor_parallel_size is {draft}; vLLM runs a draft model on as many devices as "
            f"its target, here {target}"
        )
    if draft not in (1, target):
        raise OptionError(
            f"draft_tensor_parallel_size is {draft}; vLLM takes 1 or the target's {target}"
        )
    return {"draft_tensor_parallel_size": draft}
