"""A distillation keeps its time and its tokens: a tiny target, and a clock that only work moves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from outdraft.distill import pipeline
from outdraft.distill.data import dataset
from outdraft.distill.data.dataset import make_data, make_sampler, seconds_spent, shard_paths
from outdraft.distill.data.sampler import TextSampler
from outdraft.distill.data.shards import Corpus
from outdraft.distill.pipeline import run_distillation
from outdraft.distill.probe import measure_speeds
from outdraft.distill.settings import DataSettings, DistillSettings, ModelSize, TrainSettings
from outdraft.distill.target import Target
from outdraft.distill.training import train as training
from outdraft.distill.training.train import Trainer
from outdraft.engine import assemble
from outdraft.engine.engine import Engine
from tests.distill.conftest import no_progress, tiny_prompts

WRITE_S, STEP_S, MEASURE_S, ENGINE_S = 0.05, 3.0, 4.0, 0.2  # a slow CPU
LOOK_S = 16 * WRITE_S  # what is done between two looks at the clock
DATA = DataSettings(room=128, answer_tokens=48, top_logits=8, held_out_tokens=24)
SIZE = ModelSize(hidden=32, layers=1, heads=2, kv_heads=1, intermediate=48)


class WorkClock:
    """Seconds of work that was done, whatever it really took."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def counting(self, work: Callable[..., Any], seconds: float) -> Callable[..., Any]:
        def counted(*args: Any, **options: Any) -> Any:
            self.now += seconds
            return work(*args, **options)

        return counted


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> WorkClock:
    clock = WorkClock()
    for owner, name, seconds in (
        (TextSampler, "_advance", WRITE_S),
        (Trainer, "gradients", STEP_S),
        (training, "estimate_acceptance", MEASURE_S),
        (Engine, "step", ENGINE_S),
    ):
        monkeypatch.setattr(owner, name, clock.counting(getattr(owner, name), seconds))
    monkeypatch.setattr(assemble, "_CPU_KV_CACHE_BYTES", 16 << 20)
    return clock


class Told:
    """What was said, and when."""

    def __init__(self, clock: WorkClock) -> None:
        self._clock = clock
        self.notes: list[str] = []
        self.shares: dict[str, list[tuple[float, float]]] = {}

    def __call__(self, stage: str, share: float, words: str) -> None:
        if stage == "note":
            self.notes.append(words)
        self.shares.setdefault(stage, []).append((self._clock.now, share))


def job(target_path: Path, out: Path, budget_s: float, **data: Any) -> DistillSettings:
    return DistillSettings(
        target=str(target_path),
        kind="model",
        out=out,
        work=out / "work",
        data=out / "data",
        size=SIZE,
        budget_s=budget_s,
        data_settings=replace(DATA, **data),
        train_settings=TrainSettings(batch_tokens=400),
        evaluate_tokens=24,
    )


@pytest.fixture(autouse=True)
def few_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "split_prompts", lambda own: tiny_prompts())


@pytest.mark.slow
def test_three_minutes_and_four_thousand_tokens(
    target_path: Path, tmp_path: Path, clock: WorkClock
) -> None:
    """On a CPU this wrote 21,264 tokens, stood at 100 % for five minutes and trained two steps."""
    told = Told(clock)
    report = run_distillation(
        job(target_path, tmp_path, 180.0, max_answer_tokens=4000, held_out_prompts=2), told, clock
    )
    assert clock.now <= 180 + STEP_S + LOOK_S
    assert report["data"]["answer_tokens"] == 4000
    assert Corpus(shard_paths(tmp_path / "data")).num_answer_tokens == 4000
    assert report["training"]["step"] * STEP_S > 0.5 * 180, "most of the time is for training"
    [outlook] = [note for note in told.notes if "this machine" in note]
    assert outlook.startswith("in 3m this machine writes about 4,000 answer tokens (")
    assert "the number that was given) and trains for about " in outlook
    assert "a draft learns little in fewer than 200 steps: give --budget " in outlook
    foretold = int(outlook.split("trains for about ")[1].split(" steps")[0])
    assert 0.7 < report["training"]["step"] / foretold < 1.3
    assert report["measured"]["0"]["all"]["rounds"] > 0


def test_a_slow_machine_is_tried_for_a_part_of_the_time(
    target_path: Path,
    target: Target,
    tmp_path: Path,
    clock: WorkClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Beside other programs the try took most of a minute of three."""
    monkeypatch.setattr(TextSampler, "_advance", clock.counting(TextSampler._advance, 0.5))
    work = job(target_path, tmp_path, 60.0)
    sampler = make_sampler(target, work.data_settings)
    speeds = measure_speeds(target, sampler, tiny_prompts()[0], work, clock)
    one_look = 16 * (0.5 + WRITE_S)
    assert clock.now == pytest.approx(one_look + 2 * STEP_S)
    assert speeds.tokens_per_s == pytest.approx(16 * sampler.num_texts / one_look, rel=0.1)


@pytest.mark.parametrize("budget_s", [60.0, pytest.param(900.0, marks=pytest.mark.slow)])
def test_time_is_kept_without_a_limit_of_tokens(
    target_path: Path, tmp_path: Path, clock: WorkClock, budget_s: float
) -> None:
    told = Told(clock)
    report = run_distillation(job(target_path, tmp_path, budget_s), told, clock)
    assert clock.now <= budget_s + STEP_S + LOOK_S
    assert seconds_spent(tmp_path / "data") <= 0.35 * budget_s
    assert report["training"]["step"] > 0
    assert report["data"]["answer_tokens"] > 0


@pytest.mark.slow
def test_no_stage_stands_at_the_end_of_its_bar(
    target_path: Path, tmp_path: Path, clock: WorkClock
) -> None:
    told = Told(clock)
    run_distillation(job(target_path, tmp_path, 80.0), told, clock)
    for stage in ("data", "train", "evaluate"):
        times = told.shares[stage]
        first_at_end = next(at for at, share in times if share >= 0.99)
        assert times[-1][0] - first_at_end <= STEP_S + MEASURE_S + LOOK_S, stage


@pytest.mark.slow
def test_the_data_of_a_stage_alone(target: Target, tmp_path: Path, clock: WorkClock) -> None:
    settings = replace(DATA, budget_s=15.0)
    made = make_data(target, *tiny_prompts(), tmp_path, settings, no_progress, clock=clock)
    assert 15 - 3 * LOOK_S < clock.now <= 15 + LOOK_S
    assert made["answer_tokens"] == Corpus(shard_paths(tmp_path)).num_answer_tokens > 0
    again = make_data(target, *tiny_prompts(), tmp_path, settings, no_progress, clock=clock)
    assert again == made, "the time was spent already"
    longer = replace(settings, budget_s=30.0)
    more = make_data(target, *tiny_prompts(), tmp_path, longer, no_progress, clock=clock)
    assert more["answer_tokens"] > made["answer_tokens"]
    assert clock.now <= 30 + 2 * LOOK_S


def test_a_second_is_enough_for_some_texts(
    target: Target, tmp_path: Path, clock: WorkClock
) -> None:
    settings = replace(DATA, budget_s=1.0)
    made = make_data(target, *tiny_prompts(), tmp_path, settings, no_progress, clock=clock)
    assert made["texts"] > 0
    assert clock.now < 30


@pytest.mark.parametrize("most", [1, 100, 333, 1000])
def test_tokens_are_kept_to_the_last(
    target: Target, tmp_path: Path, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = replace(DATA, max_answer_tokens=most, shard_texts=24)
    made = make_data(target, *tiny_prompts(), tmp_path, settings, no_progress)
    assert made["answer_tokens"] == most
    corpus = Corpus(shard_paths(tmp_path))
    assert corpus.num_answer_tokens == most
    assert all(len(answer) for answer in corpus.answers())


def test_held_out_answers_have_every_category_and_temperature(
    target: Target, tmp_path: Path, clock: WorkClock
) -> None:
    """However little time there is."""
    settings = replace(DATA, budget_s=20.0)
    make_data(target, *tiny_prompts(), tmp_path, settings, no_progress, clock=clock)
    held_out = Corpus([dataset.held_out_path(tmp_path)])
    seen = {
        (category, round(heat, 1))
        for category, heat in zip(held_out.categories, held_out.temperatures.tolist(), strict=True)
    }
    assert seen == {(c, t) for c in ("chat", "code") for t in dataset.HELD_OUT_TEMPERATURES}
