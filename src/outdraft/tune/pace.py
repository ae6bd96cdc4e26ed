"""How long starts and blocks of a run should take before any was measured. Pure.

A guess: of what the engine's processes usually take to start, and of parameters that every token
passes. It is good for a word before the start, and to see which engines there is time for.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean

from outdraft.tune.arm import Load
from outdraft.tune.journal import AnswerTime
from outdraft.workload.plan import Blocks

# Parameters a second that a token passes, and the least that a step takes
_PASSED_PER_S, _STEP_S = 4e9, 0.004
_PASSED_PER_S_GPU, _STEP_S_GPU = 0.75e12, 0.006
_CROWDING, _CROWDING_GPU = 0.4, 0.1  # a step of n texts takes n to this as long as one of 1
_BESIDE_STEPS = 1.15  # prompts that are read, and the way there and back
_LOADED_PER_S = 0.5e9  # parameters, in a start
_OPEN_LEAD = 1.25  # requests that come by the clock come before they count, too


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds; 0 and {}: nothing is known."""

    start_s: float = 0.0  # of one engine
    # Off's block, by the name under which the requests of a load's part are planned
    block_s: Mapping[str, float] = field(default_factory=dict)

    def slower(self, start_s: float) -> float:
        """How many times as long blocks may take, where a start took that long: it says how busy a
        machine is."""
        return min(max(start_s / self.start_s, 0.5), 10.0) if self.start_s and start_s else 1.0


def guess_pace(
    loads: Mapping[str, Load],  # by the names under which requests are planned
    blocks: Mapping[str, Blocks],
    num_parameters: int | None,  # of the target; None: not known, and nothing is guessed
    start_s: float,  # that such an engine usually takes beside loading weights
    *,
    is_gpu: bool,
    answer_times: Mapping[str, AnswerTime],  # by the name of a load, where that was measured
) -> Pace:
    block_s = {}
    for name, load in loads.items():
        requests, answer = blocks[name], answer_times.get(load.in_part("").name)
        if load.rate is not None:
            block_s[name] = _OPEN_LEAD * requests.size / load.rate
        elif answer is not None or num_parameters is not None:
            num_tokens = fmean(each.max_tokens for each in requests.plan)
            running = load.concurrency or 1
            answer_s = (
                _answer_s(num_tokens, running, num_parameters or 0, is_gpu=is_gpu)
                if answer is None
                else answer.seconds
            )
            block_s[name] = answer_s * requests.size / running
    return Pace(start_s + (num_parameters or 0) / _LOADED_PER_S, block_s)


def _answer_s(num_tokens: float, running: int, num_parameters: int, *, is_gpu: bool) -> float:
    per_s, least_s = (_PASSED_PER_S_GPU, _STEP_S_GPU) if is_gpu else (_PASSED_PER_S, _STEP_S)
    step_s = max(num_parameters / per_s, least_s)
    crowd: float = running ** (_CROWDING_GPU if is_gpu else _CROWDING)
    return _BESIDE_STEPS * num_tokens * step_s * crowd
