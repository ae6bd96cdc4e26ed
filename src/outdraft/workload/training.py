"""Prompts that a draft was trained on: a draft carries their digests, and is not measured on them.

A draft has learned the answers to its training prompts, so there its acceptance is flattered.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from outdraft.catalog import TRAINING_PROMPTS, file_beside
from outdraft.errors import OptionError
from outdraft.whole_file import write_text
from outdraft.workload.prompt import Prompt


def write_training_digests(folder: Path, digests: Iterable[str]) -> None:
    write_text(folder / TRAINING_PROMPTS, "".join(f"{each}\n" for each in sorted(set(digests))))


def add_training_digests(folder: Path, digests: Iterable[str]) -> None:
    """To those that the folder lists already."""
    write_training_digests(folder, (listed_digests(folder) or frozenset()).union(digests))


def training_digests(draft: str) -> frozenset[str] | None:
    """Of the prompts that a draft was trained on; None where it does not say."""
    path = file_beside(draft, TRAINING_PROMPTS)
    return None if path is None else listed_digests(path.parent)


def listed_digests(folder: Path) -> frozenset[str] | None:
    """Those that a folder of a draft, or of texts for one, lists; None where it lists none."""
    path = folder / TRAINING_PROMPTS
    return frozenset(path.read_text(encoding="utf-8").split()) if path.is_file() else None


def unseen_prompts(
    prompts: Sequence[Prompt], drafts: Iterable[str]
) -> tuple[list[Prompt], list[str]]:
    """The prompts that none of the drafts was trained on, and what to know about the others."""
    kept, notes = list(prompts), []
    for draft in drafts:
        digests = training_digests(draft)
        if digests is None:
            notes.append(
                f"{draft} does not say which prompts it was trained on: if it has seen the ones "
                "measured here, its figures are too good"
            )
            continue
        unseen = [prompt for prompt in kept if prompt.digest not in digests]
        if not unseen:
            raise OptionError(
                f"all {len(kept)} prompts were used to train {draft}; give others with --prompts"
            )
        if len(unseen) < len(kept):
            notes.append(
                f"{len(kept) - len(unseen)} of {len(kept)} prompts were used to train {draft} and "
                "are left out"
            )
        kept = unseen
    return kept, notes
