"""Which arms write off's text, from what is in the journal. Pure.

Once greedy texts of an arm differ from off's, off gets requests of its first blocks again, at
another batch size: how many of its own texts it repeats is the floor (`decide/texts.py`). They have
a name of their own in the journal, and count for no time but the budget's.
"""

from collections.abc import Mapping, Sequence

from outdraft.decide.texts import Agreement, TextFinding, counts_text, judge_texts
from outdraft.measure.evidence import FLOOR_TEXTS, other_concurrency, text_agreement
from outdraft.speculation import OFF, Speculation
from outdraft.tune.arm import Load, by_proposer, name_of
from outdraft.tune.journal import Block, done_records, valid_records

_MOST_BLOCKS = 4  # that are asked again, however few of their requests are greedy

ArmBlocks = Mapping[str, Sequence[Block]]  # name of an arm, off included → its blocks


def texts_part(load: Load) -> Load:
    """Off's requests of a load, sent again."""
    return Load(other_concurrency(load.concurrency), part=f"texts of {load.name}")


def next_again(
    arms: Sequence[Speculation],
    parts: Sequence[ArmBlocks],
    again: Sequence[Block],
    offs: ArmBlocks | None = None,  # of arms on another card: off's blocks there, of the race
) -> int | None:
    """The number of off's next block to ask again. None where enough of them were, or where all
    texts are off's and there is nothing to explain. `parts`: the race, whose blocks they are, and
    what else was measured under the load."""
    number = len(again)
    num_texts = sum(each.temperature == 0 for each in done_records(again))
    is_there = any(each.block == number for each in parts[0].get(name_of(OFF), ()))
    if num_texts >= FLOOR_TEXTS or number >= _MOST_BLOCKS or not is_there:
        return None
    kept = [arm for arm in arms if not arm.is_lossy]
    race, *others = parts
    compared = (
        texts_of(arm, blocks)
        for arm in kept
        for blocks in (beside_own_off(arm, race, offs or {}), *others)
    )
    return number if any(each.first_differences for each in compared if each is not None) else None


def beside_own_off(arm: Speculation, blocks: ArmBlocks, offs: ArmBlocks) -> ArmBlocks:
    """With off's blocks on the arm's own card: texts of two cards may differ by near-ties."""
    own = offs.get(name_of(arm))
    return blocks if own is None else {**blocks, name_of(OFF): own}


def texts_of(arm: Speculation, blocks: ArmBlocks) -> Agreement | None:
    """How far the arm's texts are off's, in the blocks that its row on the page is of."""
    off, own = (valid_records(blocks.get(name_of(each), ())) for each in (OFF, arm))
    return text_agreement(off, own)


def floor_of(blocks: ArmBlocks, again: Sequence[Block]) -> Agreement | None:
    """How far off's texts are its own. `blocks`: of the race."""
    return text_agreement(done_records(blocks.get(name_of(OFF), ())), done_records(again))


def other_texts(
    arms: Sequence[Speculation],
    blocks: ArmBlocks,
    floor: Agreement | None,
    offs: ArmBlocks | None = None,  # of arms on another card: off's blocks there
) -> dict[str, str]:
    """Names of arms that race no longer, because one of their proposer writes other texts than
    off → which one, and how many. The draft length has no part in that."""
    found: dict[str, str] = {}
    for members in by_proposer(arm for arm in arms if not arm.is_lossy).values():
        for arm in members:
            texts = texts_of(arm, beside_own_off(arm, blocks, offs or {}))
            if judge_texts(texts, floor) is TextFinding.OTHER:
                reason = f"{name_of(arm)} writes other texts: {counts_text(texts, floor)}"
                found |= dict.fromkeys(map(name_of, members), reason)
    return found
