"""Which requests the blocks of each load have, and how many. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil

from outdraft.measure.block_size import fitting_block
from outdraft.measure.evidence import FLOOR_TEXTS
from outdraft.stats.ratios import MIN_BLOCKS
from outdraft.tune.arm import FINAL, SCHEDULE, Load
from outdraft.tune.final import MAX_FINAL_BLOCKS
from outdraft.tune.journal import AnswerTime
from outdraft.tune.settings import RunSettings
from outdraft.tune.texts import texts_part
from outdraft.workload.plan import Blocks, make_blocks
from outdraft.workload.prompt import Prompt

MAX_BLOCKS = 20  # of the race
_LENGTH_SPREAD = 0.5  # of answers that run beside others
# Where engines take long to change, a block is long beside what one takes to wake up. Requests that
# come by the clock need longer, on every engine: queues form and go in some answers' time.
_BLOCK_S, _OPEN_BLOCK_S = 6.0, 20.0
_OPEN_ANSWERS = 8  # as long as so many answers one after the other


def deal_requests(
    settings: RunSettings,
    prompts: Sequence[Prompt],
    answer_times: Mapping[str, AnswerTime] | None = None,
    salt: str = "",
) -> dict[str, Blocks]:
    """Name of a load → its requests. Race, final and schedule of every load begin at places of
    their own among the prompts, so that no prompt comes twice while there are enough of them.
    `answer_times`: by the name of a load, where blocks are sized in time. `salt`: of this run,
    where servers may have met the same requests in an earlier one."""
    times = answer_times or {}
    num_blocks = {"": MAX_BLOCKS, FINAL: MAX_FINAL_BLOCKS, SCHEDULE: MIN_BLOCKS}
    # The final of a load right after its race: they meet last where prompts are few.
    judged = [load.in_part(part) for load in settings.loads for part in ("", FINAL)]
    parts = [*judged, *(load.in_part(SCHEDULE) for load in settings.loads)]
    blocks = {
        load.name: make_blocks(
            prompts,
            size=settings.block_size or block_size(load, times.get(load.in_part("").name)),
            count=num_blocks[load.part],
            mix=settings.mix,
            seed=settings.seed,
            max_tokens=settings.max_tokens,
            spread=0.0 if load.concurrency == 1 else _LENGTH_SPREAD,
            first=place * len(prompts) // len(parts),
            salt=salt,
        )
        for place, load in enumerate(parts)
    }
    again = {
        texts_part(load).name: replace(blocks[load.name], limit=FLOOR_TEXTS)
        for load in settings.loads
    }
    return blocks | again


def block_size(load: Load, answer: AnswerTime | None = None) -> int:
    """Enough for every slot to be busy most of the block. In the final, which takes turns with off
    alone, as few as that allows: the machine has less time to change between the two."""
    concurrency = load.concurrency or 4
    fewest = 2 if load.part == FINAL else 4
    if load.rate is not None:
        seconds = max(_OPEN_BLOCK_S, _OPEN_ANSWERS * (0.0 if answer is None else answer.seconds))
        return max(2 * concurrency, ceil(seconds * load.rate))
    if answer is None:
        return max(fewest, 2 * concurrency)
    return fitting_block(concurrency, answer.seconds, seconds=_BLOCK_S, least=fewest)
