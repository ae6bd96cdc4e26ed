"""Blocks that were measured beside other programs: said, measured again, and no bias in that."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, stdev

import pytest

from outdraft.decide.texts import Agreement
from outdraft.records import Record
from outdraft.speculation import OFF, Speculation
from outdraft.tune.arm import FINAL, Load, name_of
from outdraft.tune.journal import Block, Failure, Journal, valid_records
from outdraft.tune.marks import busy_notes, pair_to_repeat, round_to_repeat
from outdraft.tune.outcome import LoadOutcome, RunContext, make_results
from outdraft.tune.progress import Progress
from outdraft.tune.race import Standing
from outdraft.tune.results import Results
from outdraft.tune.rules import Objective, Rules, SearchSettings
from outdraft.tune.search import Search
from outdraft.tune.texts import texts_of

from .planted import Planted, Truth, arms_of

ONE = Load(concurrency=1)
ARM = Speculation("ngram", k=4)
PART = ONE.in_part(FINAL, name_of(ARM))
BUSY = "another program is using the cores (0.9 of 2)"


def block(load: Load, arm: Speculation, number: int, **fields: object) -> Block:
    return replace(Block(load.name, name_of(arm), number, 5.0, ()), **fields)  # type: ignore[arg-type]


def test_a_pair_is_measured_again_as_a_whole_and_once(tmp_path: Path) -> None:
    order = (OFF, ARM)
    with Journal(tmp_path / "journal.jsonl", {}) as journal:
        journal.add(block(PART, OFF, 0))
        assert pair_to_repeat(journal, PART, order, 0) == [], "it is not whole yet"
        journal.add(block(PART, ARM, 0))
        assert pair_to_repeat(journal, PART, order, 0) == []
        journal.add(block(PART, OFF, 1))
        journal.add(block(PART, ARM, 1, busy=BUSY))
        assert pair_to_repeat(journal, PART, order, 1) == [OFF, ARM]
        journal.add(block(PART, ARM, 1, is_again=True))
        assert pair_to_repeat(journal, PART, order, 1) == [OFF], "also after a kill in between"
        journal.add(block(PART, OFF, 1, is_again=True, busy=BUSY))
        assert pair_to_repeat(journal, PART, order, 1) == []
        assert journal.elapsed_s() == 30.0, "time that was spent is spent"
        assert busy_notes(journal) == [
            f"2 of 4 blocks were measured while others used the machine ({BUSY}): 1 measured "
            "again, 1 counted as they are"
        ]


def test_in_the_race_a_block_is_measured_again_by_itself(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal.jsonl", {}) as journal:
        journal.add(block(ONE, OFF, 0))
        journal.add(block(ONE, ARM, 0, problems=("the client was the bottleneck",)))
        assert round_to_repeat(journal, ONE, (OFF, ARM), 0) == [ARM]
        journal.add(block(ONE, ARM, 0, is_again=True, busy=BUSY))
        assert round_to_repeat(journal, ONE, (OFF, ARM), 0) == []


def answered(arm: Speculation, text: str, **fields: object) -> Block:
    record = Record("chat-1", "chat", 0.0, name_of(arm), 0, 0, 0, last_ns=9, text=text)
    return block(ONE, arm, 0, records=(record,), **fields)


def test_texts_are_those_of_the_first_time(tmp_path: Path) -> None:
    """What is sent again has another mark before it, and was told as "writes other texts"."""
    with Journal(tmp_path / "journal.jsonl", {}) as journal:
        for arm in (OFF, ARM):
            journal.add(answered(arm, "Owing to many visitors"))
        journal.add(answered(ARM, "[96d3af-3] Owing to visitors", is_again=True))
    with Journal(tmp_path / "journal.jsonl", {}) as read:
        for each in (journal, read):
            blocks = {name_of(arm): each.of(ONE.name, name_of(arm)) for arm in (OFF, ARM)}
            assert blocks[name_of(ARM)][0].is_again
            assert texts_of(ARM, blocks) == Agreement(1, 1)


@dataclass
class Machine:
    """A clock on which bursts of other programs come and go, whatever is measured.

    An answer takes the time it takes, and in a burst four times as long. A block is marked if a
    burst fell into it, however fast it was."""

    seed: int
    speedup: float
    burst_s: float = 3.0
    pause_s: float = 25.0  # between two bursts, on average
    slower: float = 4.0
    noise: float = 0.03
    has_marks: bool = True
    clock_s: float = 0.0
    bursts: list[tuple[float, float]] = field(default_factory=list)
    num_again: int = 0

    def __post_init__(self) -> None:
        chance, at = random.Random(f"bursts {self.seed}"), 0.0
        while at < 20_000:
            at += chance.expovariate(1 / self.pause_s)
            self.bursts.append((at, at + self.burst_s))
            at += self.burst_s

    def measure(self, load: Load, arm: Speculation, number: int) -> Block:
        self.num_again += load.is_again
        began, records = self.clock_s, []
        for index in range(2):
            draw = random.Random(f"{self.seed}/{load.name}/{name_of(arm)}/{number}/{index}"
                                 f"/{load.is_again}")  # fmt: skip
            seconds = 2.0 * math.exp(self.noise * draw.gauss(0, 1))
            seconds /= 1.0 if arm.is_off else self.speedup
            sent, self.clock_s = self.clock_s, self._after(self.clock_s, seconds)
            taken_ns = round((self.clock_s - sent) * 1e9)
            records.append(Record(
                f"{load.name} {number} {index}", "chat", 0.0, name_of(arm), number, index, 0,
                sent_ns=0, first_ns=taken_ns // 20, last_ns=taken_ns, completion_tokens=64,
            ))  # fmt: skip
        is_busy = any(begin < self.clock_s and end > began for begin, end in self.bursts)
        return Block(
            load.name, name_of(arm), number, self.clock_s - began, tuple(records),
            step_seconds={1: 0.03, 8: 0.031}, busy=BUSY if is_busy and self.has_marks else "",
        )  # fmt: skip

    def _after(self, at: float, seconds: float) -> float:
        """When work of so many seconds is done that begins at `at`."""
        for begin, end in self.bursts:
            if end <= at:
                continue
            if at + seconds <= begin:
                break
            seconds -= max(begin - at, 0.0)
            at = max(begin, at)
            if seconds <= (end - at) / self.slower:
                return at + self.slower * seconds
            seconds -= (end - at) / self.slower
            at = end
        return at + seconds


def search(folder: Path, machine: Machine, budget_s: float = 400) -> tuple[LoadOutcome, Journal]:
    settings = SearchSettings((ARM,), (ONE,), Rules(Objective()), budget_s)
    with Journal(folder / f"{machine.seed}.jsonl", {}) as journal:
        outcomes, _ = Search(settings, journal, machine.measure).run()
        return outcomes[0], journal


def final_errors(folder: Path, machines: Iterable[Machine]) -> list[float]:
    """Logarithms of what a final of 12 pairs measures, over the truth."""
    settings, errors = SearchSettings((ARM,), (ONE,), Rules(Objective()), 1e6), []
    for at, machine in enumerate(machines):
        with Journal(folder / f"{at}.jsonl", {}) as journal:
            final = Search(settings, journal, machine.measure)
            assert final.run_beside_off(PART, Standing(best=ARM), 12, 1e6)
            final.repeat_pairs(PART, Standing(best=ARM), 12, 1e6)
            off, own = (valid_records(journal.of(PART.name, name_of(arm))) for arm in (OFF, ARM))
        ratio = Objective().ratio(off, own)
        assert ratio is not None
        errors.append(math.log(ratio.estimate / machine.speedup))
    return errors


def error_of(errors: list[float]) -> float:
    return stdev(errors) / math.sqrt(len(errors))


@pytest.mark.parametrize(
    "speedup", [2.0, *(pytest.param(each, marks=pytest.mark.slow) for each in (1.0, 3.0))]
)
def test_measuring_again_biases_nothing(speedup: float, tmp_path: Path) -> None:
    """A block of off is longer than one of the arm, and more often marked."""
    machines = [Machine(seed, speedup) for seed in range(150)]
    marked = final_errors(tmp_path / "marked", machines)
    unmarked = (Machine(seed, speedup, has_marks=False) for seed in range(150))
    plain = final_errors(tmp_path / "plain", unmarked)
    assert fmean(each.num_again for each in machines) > 2
    assert error_of(marked) < 0.003
    assert abs(fmean(marked)) < 3 * error_of(marked), (fmean(marked), error_of(marked))
    assert stdev(marked) < 0.85 * stdev(plain), "it scatters less than with all bursts in it"


def test_marks_that_knew_the_arm_would_be_seen(tmp_path: Path) -> None:
    """Of bursts in blocks of off alone: the test above is able to fail."""

    class Partial(Machine):
        def measure(self, load: Load, arm: Speculation, number: int) -> Block:
            found = super().measure(load, arm, number)
            return found if arm.is_off else replace(found, busy="")

    errors = final_errors(tmp_path, (Partial(seed, 2.0) for seed in range(150)))
    assert fmean(errors) < -3 * error_of(errors)


def test_where_there_is_no_time_the_first_ones_count_and_a_note_says_so(tmp_path: Path) -> None:
    machine = Machine(0, 2.0)
    settings = SearchSettings((ARM,), (ONE,), Rules(Objective()), 80)
    with Journal(tmp_path / "journal.jsonl", {}) as journal:
        outcomes, schedule = Search(settings, journal, machine.measure).run()
        results = make_results(RunContext({}, "x", "t"), settings, outcomes, schedule, journal)
    assert machine.num_again == 0
    assert results.loads[0].verdict is not None
    (note,) = (each for each in results.notes if "others used the machine" in each)
    assert note.endswith("counted as they are")


def test_it_is_shown_at_once_and_after_a_kill_nothing_is_repeated_twice(tmp_path: Path) -> None:
    whole, journal = search(tmp_path, Machine(3, 2.0))
    shown: list[Progress] = []
    again = Machine(3, 2.0)
    settings = SearchSettings((ARM,), (ONE,), Rules(Objective()), 400)
    with Journal(tmp_path / "3.jsonl", {}) as kept:
        outcomes, _ = Search(settings, kept, again.measure, shown.append).run()
    assert again.num_again == 0
    assert outcomes[0].result == whole.result
    assert sum(each.is_again for each in journal.blocks.values()) > 0


def results_of(folder: Path, measured: Planted, busy: set[tuple[str, int]]) -> Results:
    arms = arms_of(("ngram", "eagle"), range(2, 5))
    settings = SearchSettings(arms, (ONE,), Rules(Objective("tpot")), 600)

    def measure(load: Load, arm: Speculation, number: int) -> Block | Failure:
        found = measured.measure(load, arm, number)
        is_busy = (name_of(arm), number) in busy and not load.is_again and not load.part
        return replace(found, busy=BUSY) if is_busy and isinstance(found, Block) else found

    with Journal(folder / "journal.jsonl", {}) as journal:
        outcomes, schedule = Search(settings, journal, measure).run()
        repeated = {(each.arm, each.block) for each in journal.replaced}
        assert repeated == busy
        return make_results(RunContext({}, "x", "t"), settings, outcomes, schedule, journal)


def test_a_marked_block_of_the_profile_is_measured_again(tmp_path: Path) -> None:
    truths = {"ngram": Truth(0.3, 0.1), "eagle": Truth(0.8, 0.05)}
    plain = results_of(tmp_path / "plain", Planted(truths), set())
    marked = {("eagle head k=4", 0), ("off", 1)}
    repeated = results_of(tmp_path / "marked", Planted(truths), marked)
    assert repeated.loads[0].best == plain.loads[0].best
    assert any(each.startswith("2 of ") and "2 measured again" in each
               for each in repeated.notes)  # fmt: skip
