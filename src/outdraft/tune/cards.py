"""Several GPUs: which engines run on which, each with an off of its own. Pure.

Two cards of one kind differ by some percent, in speed or in what else they do. So an arm is
compared with the off of its own card alone. All draft lengths of a proposer share a card: what is
predicted of one from another is then about one card too.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil

from outdraft.speculation import Speculation
from outdraft.tune.arm import by_proposer, name_of


@dataclass(frozen=True, slots=True)
class Cards:
    """`gpus`: of the engines on each card, as CUDA_VISIBLE_DEVICES names them; () where engines
    take what they find. A card is known by its place among them."""

    gpus: Sequence[tuple[str, ...]] = ((),)
    by_arm: Mapping[str, int] = field(default_factory=dict)  # name of an arm → its card, if not 0

    @property
    def others(self) -> range:
        """All but the first."""
        return range(1, len(self.gpus))

    def of(self, arm: Speculation) -> int:
        return self.of_name(name_of(arm))

    def of_name(self, name: str) -> int:
        """A schedule is on the card of the arm that it was made of, whose name its own begins
        with."""
        matching = [each for each in self.by_arm if f"{name} ".startswith(f"{each} ")]
        return self.by_arm[max(matching, key=len)] if matching else 0

    @property
    def words(self) -> dict[str, list[str]]:
        """For a journal: the GPUs of the first card under "", then those of arms elsewhere."""
        on = {"": 0, **self.by_arm}
        return {name: list(self.gpus[card]) for name, card in on.items()}

    @property
    def note(self) -> str:
        if len(self.gpus) == 1:
            return ""
        named = "; ".join(f"{','.join(each)}" for each in self.gpus)
        return (
            f"engines are dealt to {len(self.gpus)} cards (GPUs {named}), each with an off of its "
            "own that its arms are compared with"
        )


def deal_cards(
    arms: Iterable[Speculation],
    gpus: Sequence[str],  # that are visible
    num_each: int,  # GPUs of one engine
    most: int | None,  # engines that are up on a card; None: as many as are needed
    most_in_all: int | None = None,  # on all cards together, by main memory; None: any number
) -> Cards:
    """As many cards as hold the engines of all arms: each more costs the start of another off, and
    room for it in main memory."""
    proposers = list(by_proposer(arms).values())
    room = None if most is None else most - 1
    if most is None or not room or len(gpus) < 2 * num_each:
        return Cards()
    num_arms = sum(map(len, proposers))
    num_cards = min(ceil(num_arms / room), len(gpus) // num_each, len(proposers))
    if most_in_all is not None and num_arms + num_cards > most_in_all:
        num_cards = min(num_cards, most_in_all // most)
    if num_cards < 2:
        return Cards()
    held = [0] * num_cards
    by_arm: dict[str, int] = {}
    for members in proposers:
        card = held.index(min(held))
        held[card] += len(members)
        by_arm |= {name_of(arm): card for arm in members if card}
    groups = [tuple(gpus[at * num_each : (at + 1) * num_each]) for at in range(num_cards)]
    return Cards(groups, by_arm)
