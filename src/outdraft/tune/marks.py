"""Blocks that were measured while the machine was busy, or the client unfit. Pure.

They are measured again when there is time. Which ones is decided by marks, which know nothing of
how fast anything was: a rule that looked at the times would keep those that please. A pair of the
final is measured again as a whole, once, and then counts instead: the two blocks of a pair stay
close to each other, and no block is chosen out of several.
"""

from collections.abc import Iterable, Sequence

from outdraft.speculation import Speculation
from outdraft.tune.arm import Load, name_of
from outdraft.tune.journal import Block, Journal


def pair_to_repeat(
    journal: Journal, part: Load, order: Sequence[Speculation], number: int
) -> list[Speculation]:
    """Arms of a pair that are measured again, in this order; also the rest of a pair of which one
    was."""
    found = [journal.blocks.get((part.name, name_of(arm), number)) for arm in order]
    blocks = [each for each in found if each is not None]
    if len(blocks) < len(order) or not any(each.is_marked or each.is_again for each in blocks):
        return []
    return [arm for arm, each in zip(order, blocks, strict=True) if not each.is_again]


def round_to_repeat(
    journal: Journal, race: Load, arms: Iterable[Speculation], number: int
) -> list[Speculation]:
    """Arms whose own block of a round of the race was marked. Nobody is judged by it."""
    blocks = {arm: journal.blocks.get((race.name, name_of(arm), number)) for arm in arms}
    return [arm for arm, each in blocks.items() if each and each.is_marked and not each.is_again]


def busy_notes(journal: Journal) -> list[str]:
    """How many blocks were measured beside other programs, and how many of these again."""
    first = [each for each in journal.replaced if each.busy]
    left = [each for each in journal.blocks.values() if each.busy]
    every = {_key(each) for each in (*first, *left)}
    if not every:
        return []
    reason = max((*first, *left), key=lambda each: len(each.busy)).busy
    total, num_again = len(journal.blocks), len({_key(each) for each in first})
    words = f"{len(every)} of {total} blocks were measured while others used the machine ({reason})"
    again = f"{num_again} measured again" if num_again else ""
    still = f"{len(left)} counted as they are" if left else ""
    return [f"{words}: {', '.join(filter(None, (again, still)))}"]


def _key(block: Block) -> tuple[str, str, int]:
    return block.load, block.arm, block.block
