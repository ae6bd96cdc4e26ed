"""What somebody may have meant by arguments that a command does not have."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from outdraft.errors import nearest_name

# Without dashes: what other tools say, and what we do
_OTHER_NAMES: dict[str, str] = tomllib.loads(
    Path(__file__).with_name("other_names.toml").read_text(encoding="utf-8")
)
_SIZE = re.compile(r"-[\d.]+[bm]\b", re.IGNORECASE)  # of a model: smollm2-135m
_ALIKE = 0.7  # without their dashes, which all share: --duration is not --draft


def unknown_arguments(
    words: Sequence[str], flags: Sequence[str], places: Mapping[str, str] | None = None
) -> str:
    """The message about arguments that nobody understood, with what is near to them.
    `places`: arguments without a flag, and how the usage calls them."""
    hints = [
        _hint(word, flags, places or {})
        for before, word in zip(("", *words), words, strict=False)
        if word.startswith("-") or not before.startswith("-")  # else the value of an unknown flag
    ]
    meant = ", ".join(dict.fromkeys(hint for hint in hints if hint is not None))
    return f"unrecognized arguments: {' '.join(words)}{meant and f' (did you mean {meant}?)'}"


def _hint(word: str, flags: Sequence[str], places: Mapping[str, str]) -> str | None:
    if not word.startswith("-"):  # a model without its flag?
        is_model = "/" in word or word.endswith(".gguf") or _SIZE.search(word)
        return f"--target {word}" if is_model and "--target" in flags else None
    name = word.partition("=")[0].lstrip("-").replace("_", "-").lower()
    meant = _OTHER_NAMES.get(name, name)
    for ours in (meant, _OTHER_NAMES.get(meant, meant)):  # a plan counts cards: tp, then gpu
        if f"--{ours}" in flags:
            return f"--{ours}"
    place = meant if meant in places else nearest_name(name, places, _ALIKE)
    if place is not None:
        return f"{places[place]} without a flag"
    near = nearest_name(name, [each.lstrip("-") for each in flags], _ALIKE)
    return None if near is None else f"--{near}"
