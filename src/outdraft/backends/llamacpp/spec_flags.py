"""A Speculation as llama-server's flags, under the names that its version knows.

llama.cpp renamed its speculative flags several times, and `-md` alone loads a draft without ever
using it: `--spec-type` is always given where there is one.
"""

from collections.abc import Sequence
from dataclasses import replace

from outdraft.backends.flags import Flag, make_flags, user_flags
from outdraft.backends.installation import Installation
from outdraft.speculation import WITH_DRAFT, Speculation

# The names of each setting over the years, newest first.
DRAFT_MODEL = ("--spec-draft-model", "--model-draft", "-md")
_DRAFT_MAX = ("--spec-draft-n-max", "--draft-max", "--draft", "--draft-n")
_DRAFT_MIN = ("--spec-draft-n-min", "--draft-min", "--draft-n-min")
_SIZE_N = ("--spec-ngram-simple-size-n", "--spec-ngram-size-n")
_SIZE_M = ("--spec-ngram-simple-size-m", "--spec-ngram-size-m")
SAMPLING = "--spec-draft-sampling"
_TYPES = {"ngram": "ngram-simple", "draft_model": "draft-simple", "eagle": "draft-eagle3"}

# A user's own flags that articles still show: what they are called with a draft, and with n-grams.
_NEW_NAMES = {old: new for new, *earlier in (_DRAFT_MAX, _DRAFT_MIN) for old in earlier}
_NEW_NGRAM_NAMES = {
    **dict.fromkeys(_DRAFT_MAX[1:], "--spec-ngram-{kind}-size-m"),
    **{f"--spec-ngram-{each}": f"--spec-ngram-{{kind}}-{each}"
       for each in ("size-n", "size-m", "min-hits")},
}  # fmt: skip
_GONE = ("--ctx-size-draft", "-cd", "--spec-replace", "--spec-draft-conf-min")


def supported_methods(installation: Installation) -> frozenset[str]:
    """The methods that this version can do."""
    types = installation.choices.get("--spec-type", ())
    methods = {"off"}
    for method, kind in _TYPES.items():
        needed = (DRAFT_MODEL, _DRAFT_MAX) if method in WITH_DRAFT else (_SIZE_N, _SIZE_M)
        # There are versions in which -md itself turns a draft model on.
        is_a_type = kind in types or method == "draft_model"
        if is_a_type and all(installation.first_of(*names) for names in needed):
            methods.add(method)
    return frozenset(methods)


def speculative_flags(
    speculation: Speculation, draft: str | None, installation: Installation, notes: list[str]
) -> list[Flag]:
    """The flags; `notes` gets what was translated. `draft` is the draft's file."""
    if speculation.is_off:
        return []
    kind = _TYPES[speculation.method]
    has_kind = kind in installation.choices.get("--spec-type", ())
    settings: dict[str, object] = {"--spec-type": kind if has_kind else None}
    if speculation.method in WITH_DRAFT:
        settings |= {
            installation.first_of(*DRAFT_MODEL): draft,
            installation.first_of(*_DRAFT_MAX): speculation.k,
            SAMPLING: "probabilistic" if speculation.rule == "rejection" else None,
        }
        return make_flags(settings)
    size = min(speculation.prompt_lookup_min, speculation.k)
    settings |= {
        installation.first_of(*_SIZE_N): size,
        installation.first_of(*_SIZE_M): speculation.k,
    }
    notes.append(
        f"llama.cpp looks for matches of one length: {size}, not "
        f"{speculation.prompt_lookup_min} to {speculation.prompt_lookup_max}"
    )
    if size < speculation.prompt_lookup_min:
        notes.append(f"it drops drafts that are shorter than the match, so that is k, {size}")
    return make_flags(settings)


def translate_names(
    extra: Sequence[str], speculation: Speculation, installation: Installation, notes: list[str]
) -> list[Flag]:
    """A user's own flags, old names replaced by those this version has; `notes` names each."""
    flags: list[Flag] = []
    for flag in user_flags(extra):
        if flag.name in _GONE and not installation.has(flag.name):
            notes.append(f"{flag.name} is gone from llama.cpp and was left out")
            continue
        new = _new_name(flag.name, speculation, extra)
        if new is not None and installation.has(new) and not installation.has(flag.name):
            notes.append(f"{flag.name} is now {new}; it is taken as that")
            flag = replace(flag, name=new)
        flags.append(flag)
    return flags


def _new_name(old: str, speculation: Speculation, extra: Sequence[str]) -> str | None:
    kinds = ("map-k4v", "map-k", "simple")  # of n-gram methods, as the user's own flags name them
    kind = next((each for each in kinds if any(f"ngram-{each}" in word for word in extra)), None)
    if kind is None and speculation.method == "ngram":
        kind = "simple"
    if kind is not None and old in _NEW_NGRAM_NAMES and speculation.method not in WITH_DRAFT:
        return _NEW_NGRAM_NAMES[old].format(kind=kind)
    return _NEW_NAMES.get(old)
