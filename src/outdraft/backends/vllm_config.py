"""A Speculation as vLLM's `--speculative-config`."""

from __future__ import annotations

from typing import Any

from outdraft.backends.backend import Serving
from outdraft.backends.model_names import model_name
from outdraft.backends.vllm_found import KEY, Found
from outdraft.errors import OptionError
from outdraft.speculation import WITH_DRAFT, Speculation

_METHODS = {"ngram": "ngram", "suffix": "suffix", "draft_model": "draft_model", "eagle": "eagle3"}
_MAX_NUM_SEQS = 1024  # its largest default

Config = dict[str, Any]


def speculative_config(
    speculation: Speculation, serving: Serving, found: Found
) -> tuple[Config, list[str]]:
    """The config and what to know about it. OptionError for what this vLLM cannot do."""
    notes: list[str] = []
    config: Config = {
        "method": _METHODS[speculation.method],
        "num_speculative_tokens": speculation.k,
    }
    if speculation.method == "ngram":
        config["prompt_lookup_min"] = speculation.prompt_lookup_min
        config["prompt_lookup_max"] = speculation.prompt_lookup_max
    if speculation.method == "suffix":
        notes += _suffix(found)
    if speculation.method in WITH_DRAFT:
        assert speculation.draft is not None
        config["model"] = vllm_model(speculation.draft, notes)
        config |= _draft_devices(speculation, serving)
        config |= _draft_quantization(speculation, found, notes)
    elif speculation.draft_tensor_parallel_size is not None:
        notes.append(f"draft_tensor_parallel_size is left out: {speculation.method} has no draft")
    config |= _rule(speculation, found, notes)
    config |= _schedule(speculation, serving, found, notes)
    missing = next((key for key in config if not found.has(KEY + key)), None)
    if missing is not None:
        raise OptionError(
            f"vLLM {found.installed.version} has no {missing} in --speculative-config; "
            "use a newer vLLM or leave it out"
        )
    return config, notes


def vllm_model(name: str, notes: list[str]) -> str:
    """As vLLM finds it: a folder or a hub id."""
    found = model_name(name, notes)
    if found.endswith(".gguf"):
        raise OptionError(
            f"vLLM does not serve GGUF files, got {found}; give a hub id or a folder, "
            "which `outdraft export` makes"
        )
    return found


def _suffix(found: Found) -> list[str]:
    if not found.has_suffix:
        raise OptionError(
            "suffix needs the package arctic-inference beside vLLM; run pip install "
            "arctic-inference==0.1.1 there, or choose ngram, draft_model or eagle"
        )
    if not found.is_here:
        return ["suffix needs the package beside vLLM: pip install arctic-inference==0.1.1"]
    return []


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


def _draft_quantization(speculation: Speculation, found: Found, notes: list[str]) -> Config:
    if speculation.quantization == "none":
        return {}
    if speculation.quantization == "int8" and not found.is_cpu:
        notes.append(
            "vLLM does not make int8 weights while it loads; fp8 takes the same memory "
            "(a draft whose files are int8 already needs no quantization here)"
        )
        return {"quantization": "fp8"}
    raise OptionError(
        f"vLLM{' on a CPU' if found.is_cpu else ''} does not make {speculation.quantization} "
        "weights while it loads; name a draft whose files are quantized (AWQ, GPTQ, "
        "compressed-tensors) and leave its quantization none"
    )


def _rule(speculation: Speculation, found: Found, notes: list[str]) -> Config:
    if speculation.rule == "typical":
        raise OptionError(
            "vLLM has no typical acceptance any more (gone with its first engine); "
            "the rule that accepts most is rejection, and it is lossless"
        )
    if speculation.method not in WITH_DRAFT:
        return {}  # what is looked up has no probabilities: both rules are the same
    if speculation.rule == "rejection":
        return {"draft_sample_method": "probabilistic"}
    notes.append(
        "coupled by seed is outdraft's own; here the draft proposes its likeliest token and the "
        "target's distribution decides: the same distribution of texts, not the same text"
    )
    return {"draft_sample_method": "greedy"} if found.has(KEY + "draft_sample_method") else {}


def _schedule(speculation: Speculation, serving: Serving, found: Found, notes: list[str]) -> Config:
    if not speculation.schedule:
        return {}
    key = "num_speculative_tokens_per_batch_size"
    if not found.has(KEY + key):
        raise OptionError(
            f"vLLM {found.installed.version} has no draft length by batch size (it came with "
            "0.24); leave the schedule out"
        )
    notes.append("the schedule counts all requests of a step, those in prefill too")
    # Its table ends at max_num_seqs, and gaps carry the k before them: a larger end says nothing.
    last = serving.max_num_seqs or _MAX_NUM_SEQS
    return {
        key: [
            [start, max(start, min(end, last)), min(k, speculation.k)]
            for start, end, k in speculation.schedule
        ]
    }
