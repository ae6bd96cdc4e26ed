"""llama-server's flags for a speculation, under the names that its version knows. Pure.

llama.cpp renamed its speculative flags several times, and `-md` alone loads a draft without ever
using it: `--spec-type` is always given where there is one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from outdraft.backends.llamacpp_found import Found
from outdraft.errors import OptionError, unknown_choice
from outdraft.speculation import METHODS, WITH_DRAFT, Speculation

# What each setting was called over the years, newest first.
_DRAFT_MODEL = ("--spec-draft-model", "--model-draft", "-md")
_DRAFT_MAX = ("--spec-draft-n-max", "--draft-max", "--draft", "--draft-n")
_SIZE_N = ("--spec-ngram-simple-size-n", "--spec-ngram-size-n")
_SIZE_M = ("--spec-ngram-simple-size-m", "--spec-ngram-size-m")
_SAMPLING = "--spec-draft-sampling"

_TYPES = {"ngram": "ngram-simple", "draft_model": "draft-simple", "eagle": "draft-eagle3"}


def methods_of(found: Found) -> tuple[str, ...]:
    """The methods that this version can do, in our order."""
    can = {"off"}
    can |= {method for method, kind in _TYPES.items() if kind in found.spec_types}
    if "draft-simple" not in found.spec_types and _first(found, _DRAFT_MODEL):
        can.add("draft_model")  # a version in which -md itself turns it on
    if not (_first(found, _SIZE_N) and _first(found, _SIZE_M)):
        can.discard("ngram")
    return tuple(each for each in METHODS if each in can)


def rules_of(found: Found) -> tuple[str, ...]:
    """llama.cpp draws the target's token and compares: the text of a seed stays the same."""
    return ("coupled", "rejection") if _SAMPLING in found.options else ("coupled",)


def speculation_flags(
    speculation: Speculation, draft: str | None, found: Found
) -> tuple[list[str], list[str]]:
    """The flags, and notes on what was translated. `draft` is the draft's file."""
    if speculation.is_off:
        return [], []
    check(speculation, found)
    flags: list[str] = []
    notes: list[str] = []
    if (kind := _TYPES[speculation.method]) in found.spec_types:
        flags += ["--spec-type", kind]
    if speculation.method in WITH_DRAFT:
        flags += [_first(found, _DRAFT_MODEL), str(draft)]
        flags += [_first(found, _DRAFT_MAX), str(speculation.k)]
        if speculation.rule == "rejection":
            flags += [_SAMPLING, "probabilistic"]
    else:
        size = min(speculation.prompt_lookup_min, speculation.k)
        flags += [_first(found, _SIZE_N), str(size), _first(found, _SIZE_M), str(speculation.k)]
        notes.append(
            f"llama.cpp looks for matches of one length: {size}, not "
            f"{speculation.prompt_lookup_min} to {speculation.prompt_lookup_max}"
        )
        if size < speculation.prompt_lookup_min:
            notes.append(f"it drops drafts that are shorter than the match, so that is k, {size}")
    return flags, notes


def check(speculation: Speculation, found: Found) -> None:
    methods, rules = methods_of(found), rules_of(found)
    if speculation.method not in methods:
        raise unknown_choice("method of this llama.cpp", speculation.method, methods)
    if speculation.rule not in rules:
        raise unknown_choice("verification rule of this llama.cpp", speculation.rule, rules)
    if speculation.schedule:
        raise OptionError(
            "llama.cpp has no draft length by load, got a schedule; leave it out, or use outdraft "
            "or vllm"
        )
    if speculation.quantization != "none":
        raise OptionError(
            f"llama.cpp does not quantize a draft while loading, got {speculation.quantization}; "
            "name a quantized .gguf as the draft"
        )
    if speculation.draft_tensor_parallel_size not in (None, 1):
        raise OptionError(
            "llama.cpp has no tensor parallel size for a draft, got "
            f"{speculation.draft_tensor_parallel_size}; choose devices with --spec-draft-device"
        )


# ---------------------------------------------------------------- flags out of articles

_DRAFT_NAMES = {
    "--draft": "--spec-draft-n-max",
    "--draft-n": "--spec-draft-n-max",
    "--draft-max": "--spec-draft-n-max",
    "--draft-min": "--spec-draft-n-min",
    "--draft-n-min": "--spec-draft-n-min",
}
_NGRAM_NAMES = {
    "--draft": "--spec-ngram-{kind}-size-m",
    "--draft-n": "--spec-ngram-{kind}-size-m",
    "--draft-max": "--spec-ngram-{kind}-size-m",
    "--spec-ngram-size-n": "--spec-ngram-{kind}-size-n",
    "--spec-ngram-size-m": "--spec-ngram-{kind}-size-m",
    "--spec-ngram-min-hits": "--spec-ngram-{kind}-min-hits",
}
_GONE = {  # with the number of values that each had
    "--ctx-size-draft": 1,
    "-cd": 1,
    "--spec-replace": 2,
    "--spec-draft-conf-min": 1,
}


def translated(
    extra: Sequence[str], speculation: Speculation, found: Found
) -> tuple[list[str], list[str]]:
    """A user's own flags, old names replaced by those this version has, and a note for each."""
    flags: list[str] = []
    notes: list[str] = []
    words = list(extra)
    while words:
        word = words.pop(0)
        name, has_value, value = word.partition("=")
        if not word.startswith("-") or name in found.options:
            flags.append(word)
        elif name in _GONE:
            dropped = [] if has_value else words[: _GONE[name]]
            del words[: len(dropped)]
            notes.append(f"{name} is gone from llama.cpp and was left out")
        else:
            new = _new_name(name, speculation, extra)
            if new is not None and new in found.options:
                notes.append(f"{name} is now {new}; it is taken as that")
                flags += [new, value] if has_value else [new]
            else:
                flags.append(word)
    return flags, notes


def _new_name(old: str, speculation: Speculation, extra: Sequence[str]) -> str | None:
    kind = _ngram_kind(extra)
    if kind is None and speculation.method == "ngram":
        kind = "simple"
    if kind is not None and old in _NGRAM_NAMES and speculation.method not in WITH_DRAFT:
        return _NGRAM_NAMES[old].format(kind=kind)
    return _DRAFT_NAMES.get(old)


def _ngram_kind(extra: Sequence[str]) -> str | None:
    """Which of the n-gram types the user's own flags name."""
    for kind in ("map-k4v", "map-k", "simple"):
        if any(f"ngram-{kind}" in word for word in extra):
            return kind
    return None


def speculates(flags: Collection[str]) -> str | None:
    """The flag, among a user's own, that turns speculation on."""
    names = {word.partition("=")[0] for word in flags}
    return next((each for each in ("--spec-type", "--spec-default") if each in names), None)


def names_draft(flags: Collection[str]) -> str | None:
    names = {word.partition("=")[0] for word in flags}
    hub = ("--spec-draft-hf", "-hfd", "-hfrd", "--hf-repo-draft")
    return next((each for each in (*_DRAFT_MODEL, *hub) if each in names), None)


def _first(found: Found, names: Sequence[str]) -> str:
    """The newest name that this version has; empty where it has none."""
    return next((name for name in names if name in found.options), "")
