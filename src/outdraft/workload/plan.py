"""From prompts to the requests of a load: temperatures, lengths and seeds, cut into blocks."""

import hashlib
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from outdraft.workload.prompt import Message, Planned, Prompt
from outdraft.workload.temperatures import assign_temperatures


def shuffled_by_category(prompts: Sequence[Prompt], draw: random.Random) -> dict[str, list[Prompt]]:
    """The prompts of each category, in an order of chance."""
    by_category: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        by_category.setdefault(prompt.category, []).append(prompt)
    for members in by_category.values():
        draw.shuffle(members)
    return by_category


def choose_balanced(prompts: Sequence[Prompt], count: int, seed: int) -> list[Prompt]:
    """`count` prompts, every category in its share of the set throughout, in an order set by the
    seed. So all blocks are alike, and what differs between categories does not widen an interval
    over blocks.

    A category that runs out starts again, so a short set is repeated rather than refused.
    """
    draw = random.Random(seed)
    by_category = shuffled_by_category(prompts, draw)
    taken: Counter[str] = Counter()
    chosen = []
    for number in range(1, count + 1 if prompts else 1):
        # The one that is farthest behind its share; equals in an order of chance.
        behind = {
            name: number * len(members) - taken[name] * len(prompts)
            for name, members in by_category.items()
        }
        category = max(behind, key=lambda name: (behind[name], draw.random()))
        members = by_category[category]
        chosen.append(members[taken[category] % len(members)])
        taken[category] += 1
    return chosen


def plan_requests(
    prompts: Sequence[Prompt],
    *,
    mix: Sequence[tuple[float, float]],
    seed: int,
    max_tokens: int | None = None,
    spread: float = 0.0,
    offsets_ns: Sequence[int] | None = None,
) -> list[Planned]:
    """One request for each prompt. Without `max_tokens`, as many as the prompt is expected to need.
    `spread`: lengths are drawn from so much less to so much more, as a share. Answers of one length
    that begin together end together, and the next prompts all wait for each other.

    The shares of the mix hold over the whole plan, however few prompts a category has, and about
    as well in every category.
    """
    draw = random.Random(seed)
    places: dict[str, list[int]] = {}
    for index, prompt in enumerate(prompts):
        places.setdefault(prompt.category, []).append(index)
    for members in places.values():
        draw.shuffle(members)
    by_category = [index for members in places.values() for index in members]
    temperatures = dict(zip(by_category, _deal_temperatures(mix, len(prompts), draw), strict=True))
    return [
        Planned(
            prompt,
            temperatures[index],
            _spread(max_tokens or prompt.expected_tokens, spread, draw),
            seed=draw.getrandbits(31),
            offset_ns=None if offsets_ns is None else offsets_ns[index],
        )
        for index, prompt in enumerate(prompts)
    ]


def _spread(length: int, spread: float, draw: random.Random) -> int:
    return max(round(length * draw.uniform(1 - spread, 1 + spread)), 1) if spread else length


def _deal_temperatures(
    mix: Sequence[tuple[float, float]], count: int, draw: random.Random
) -> list[float]:
    """Each temperature in its share, and in about its share of every stretch of the list."""
    counts = Counter(assign_temperatures(mix, count, 0))
    places = [
        ((at + draw.random()) / total, temperature)
        for temperature, total in counts.items()
        for at in range(total)
    ]
    return [temperature for _, temperature in sorted(places)]


@dataclass(frozen=True, slots=True)
class Blocks:
    """The requests of every block, cut from one plan: a block is too small for the shares of a
    mix to hold in it."""

    plan: Sequence[Planned]
    size: int
    seed: int
    first: int = 0  # place of the first prompt among all that were chosen
    salt: str = ""  # of a run: a server may have the requests of an earlier one in its cache
    limit: int | None = None  # requests of a block that are sent, where not all of them are
    warmup: Sequence[Planned] = ()  # of prompts that are not in the plan, if there are any
    pool: Sequence[Planned] = ()  # one for each such prompt; for what is sent and not counted

    @property
    def count(self) -> int:
        return len(self.plan) // self.size

    @property
    def num_repeats(self) -> int:
        """Requests with a prompt that their block has had already."""
        starts = range(0, len(self.plan), self.size)
        parts = [self.plan[at : at + self.size] for at in starts]
        return sum(len(part) - len({each.prompt.id for each in part}) for part in parts)

    def requests(self, block: int, arm: str = "") -> list[Planned]:
        """The requests of a block, each with a salt before its text, so that no server has its
        beginning in a cache. They are the same for all arms; arms that share a server pass `arm`
        to make them differ. Block -1 is the warm-up."""
        salt = self._salt(block, arm)
        return [
            salted(each, f"{salt}-{index}")
            for index, each in enumerate(self._part(block)[: self.limit])
        ]

    def spare(self, block: int, count: int, arm: str = "") -> list[Planned]:
        """`count` requests to be sent along with those of a block: of none of its prompts, if there
        are others, and of other prompts in the next block. Salted as those of the block are."""
        part, salt = self._part(block), self._salt(block, arm)
        own = {each.prompt.id for each in part}
        pool = self.pool or self.plan
        others = [each for each in pool if each.prompt.id not in own] or pool
        chosen = [others[(block * count + place) % len(others)] for place in range(count)]
        return [salted(each, f"{salt}-{len(part) + at}") for at, each in enumerate(chosen)]

    def _part(self, block: int) -> Sequence[Planned]:
        at = block % self.count * self.size
        return self.plan[at : at + self.size] if block >= 0 else self.warmup

    def _salt(self, block: int, arm: str) -> str:
        key = f"{self.salt}/{self.seed}/{self.first}/{block}/{arm}".encode()
        return hashlib.blake2b(key, digest_size=3).hexdigest()


def make_blocks(
    prompts: Sequence[Prompt],
    *,
    size: int,
    count: int,
    mix: Sequence[tuple[float, float]],
    seed: int,
    max_tokens: int | None = None,
    spread: float = 0.0,
    first: int = 0,
    salt: str = "",
) -> Blocks:
    """`first`: so many prompts are passed over, which others take."""
    chosen = choose_balanced(prompts, first + size * count, seed)[first:]
    used = {each.id for each in chosen}
    spare = [each for each in prompts if each.id not in used] or prompts
    plan, warmup, pool = (
        plan_requests(each, mix=mix, seed=seed, max_tokens=max_tokens, spread=spread)
        for each in (chosen, *(choose_balanced(spare, n, seed) for n in (size, len(spare))))
    )
    return Blocks(plan, size, seed, first, salt, warmup=warmup, pool=pool)


def salted(planned: Planned, salt: str) -> Planned:
    """The same request with a salt before its text."""
    first, *rest = planned.prompt.messages
    marked = Message(first.role, f"[{salt}] {first.content}")
    return replace(planned, prompt=replace(planned.prompt, messages=(marked, *rest)))
