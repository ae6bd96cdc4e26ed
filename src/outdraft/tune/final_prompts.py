"""The prompts of a final, and how many of them the race had too: the arm was chosen on those. Pure.

Every sentence about them is made of one count, which the results have.
"""

from collections.abc import Iterable, Iterator, Sequence

from outdraft.tune.journal import Block
from outdraft.tune.results import FinalPrompts, LoadResult
from outdraft.tune.wording import joined

_FEW = 40  # with fewer, a few that gain by far make an interval too narrow


def count_prompts(raced: Iterable[Block], judged: Iterable[Block]) -> FinalPrompts | None:
    """From blocks of all arms in the race, and those of the final that are compared; None without
    any of these."""
    before, final = (
        [each.prompt_id for block in blocks for each in block.records if not each.is_warmup]
        for blocks in (raced, judged)
    )
    distinct = set(final)
    return FinalPrompts(len(distinct), len(distinct & set(before)), len(final)) if final else None


def prompt_notes(load: LoadResult) -> Iterator[str]:
    """Where the final had few prompts, or ones that the race had too."""
    if (prompts := load.prompts) is None:
        return
    if prompts.num_raced:
        used = f"{prompts.num_raced} of the {prompts.num} prompts of the final were in the race too"
        yield f"{load.name}: {used}: the arm was chosen on them; more prompts would mend that"
    if prompts.num < min(_FEW, prompts.num_requests // 2):
        few = f"the final had {prompts.num} different prompts"
        yield f"{load.name}: {few}: the interval says little about others"


def measured_anew(loads: Sequence[LoadResult]) -> str:
    """That the best arm was, at which loads, and on what; empty where nothing was judged."""
    judged = [load for load in loads if load.verdict is not None]
    if not judged:
        return ""
    said = "The best arm was measured anew after it was chosen"
    if len(judged) < len(loads):
        named = joined([load.name for load in judged])
        said = f"At {named} the best arm was measured anew after it was chosen"
    known = [(load, load.prompts) for load in judged if load.prompts is not None]
    shared = [
        f"{prompts.num_raced} of {prompts.num} at {load.name}"
        for load, prompts in known
        if prompts.num_raced
    ]
    if not shared:  # results of before do not say on what
        return f"{said}, on other prompts." if len(known) == len(judged) else f"{said}."
    return f"{said}. Of the prompts of that final, the race had {joined(shared)} too."


def other_prompts(load: LoadResult) -> str:
    """How many prompts of the final are others than those of the race; empty where that is not
    known, or where none is."""
    prompts = load.prompts
    if prompts is None or prompts.num == prompts.num_raced:
        return ""
    if not prompts.num_raced:
        return "The final had other prompts"
    num_new = prompts.num - prompts.num_raced
    return f"Of the {prompts.num} prompts of the final {num_new} were not in the race"
