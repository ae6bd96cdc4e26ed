"""What is worked out before anything is measured, and how a run is put together."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from outdraft.backends.lookup import backend_elsewhere
from outdraft.cli.main import find_command
from outdraft.errors import OptionError
from outdraft.testing.tiny_models import tiny_model
from outdraft.tune import placing
from outdraft.tune import run as run_module
from outdraft.tune.arm import name_of
from outdraft.tune.journal import AnswerTime, Journal
from outdraft.tune.lab import Lab
from outdraft.tune.progress import Progress
from outdraft.tune.requests import deal_requests
from outdraft.tune.results import FAILED
from outdraft.tune.run import RunPlan, plan_run, run_tuning
from outdraft.tune.settings import RunSettings

from .planted import Planted, Truth
from .staged import VLLM


class Display:
    def __init__(self) -> None:
        self.notes: list[str] = []
        self.phases: list[str] = []

    def note(self, words: str) -> None:
        self.notes.append(words)

    def progress(self, progress: Progress) -> None:
        self.phases.append(progress.phase)

    def starting(self, arm: str, seconds: float, line: str, usual_s: float | None) -> None:
        raise AssertionError("no engine is started here")

    def answered(self, done: int, total: int) -> None:
        raise AssertionError("no request is sent here")


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_model(tmp_path_factory.mktemp("tiny"), "llama"))


def short(made: RunPlan) -> RunPlan:
    return replace(made, search=replace(made.search, budget_s=100.0))


def plan(target: str, *flags: str) -> RunPlan:
    words = ("--target", target, "--methods", "ngram", "--k", "2..4", "--category", "chat", *flags)
    return plan_run(RunSettings.from_options(find_command("tune").parse(words)))


def test_arms_and_requests_of_each_load(target: str) -> None:
    made = plan(target, "--concurrency", "1,8", "--draft-quantization", "int8")
    assert [name_of(arm) for arm in made.search.arms] == ["ngram k=2", "ngram k=3", "ngram k=4"]
    assert {name: each.size for name, each in made.blocks.items()} == {
        "concurrency 1": 4, "concurrency 8": 16,
        "concurrency 1, final": 2, "concurrency 8, final": 16,
        "concurrency 1, schedule": 4, "concurrency 8, schedule": 16,
        "concurrency 4, texts of concurrency 1": 4, "concurrency 1, texts of concurrency 8": 16,
    }  # fmt: skip
    again = {name: made.blocks.pop(name) for name in list(made.blocks) if "texts of" in name}
    for name, blocks in again.items():
        load = name.partition("texts of ")[2]
        assert blocks.requests(1) == made.blocks[load].requests(1)[:16], "word for word the same"
    few = [each for each in made.blocks.values() if each.size < 16]
    ids = [{each.prompt.id for each in blocks.requests(0)} for blocks in few]
    assert sum(map(len, ids)) == len(set[str]().union(*ids)), "no part has prompts of another"
    assert made.search.num_profile == {"concurrency 8": 1}, "a large block profiles as two do"
    assert made.settings.serving.max_num_seqs is None, "as in production: the engine's own default"
    assert made.search.keeps_engines


def test_warnings_of_the_engine_are_shown_and_kept(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = plan(target, "--rule", "coupled,typical", "--temperature", "0.8", "--concurrency", "1")
    (warning,) = made.context.warnings
    assert "typical" in warning
    planted = Planted({"ngram": Truth(0.8, 0.02)})
    play(monkeypatch, planted)
    made = replace(made, search=replace(made.search, budget_s=150.0))
    display = Display()
    results = run_tuning(made, tmp_path, display)
    work = "3 engines to start, 1 load to judge: about "
    assert display.notes[:2] == [made.keeping.memory, f"note: {warning}"]
    assert display.notes[2].startswith(f"time: {work}")
    assert display.notes[2].endswith(" at least, of --budget 2m30s")
    assert display.notes[3].startswith(f"time at this pace: {work}"), "a block takes 8 s here"
    assert len(display.notes) == 4
    assert results.notes[-1] == warning
    assert set(display.phases) == {"profile", "race", "final"}
    assert results.settings["acceptance"] == "coupled,typical"
    again = Display()
    assert run_tuning(made, tmp_path, again).loads == results.loads
    assert again.notes[:2] == [made.keeping.memory, f"note: {warning}"]
    going_on = f"going on with {results.num_requests // 8} blocks from {results.started_at[:10]} "
    assert again.notes[2].startswith(going_on)
    assert f" UTC in {tmp_path}; " in again.notes[2]
    assert again.notes[3].startswith(f"time: {work}")
    assert len(again.notes) == 4


def play(monkeypatch: pytest.MonkeyPatch, planted: Planted) -> None:
    """Blocks are planted, and no engine is started."""
    monkeypatch.setattr(Lab, "measure", lambda lab, *step: planted.measure(*step))
    monkeypatch.setattr(Lab, "prepare", lambda lab, load, arms: None)


def test_what_failed_is_tried_again_when_asked(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = short(plan(target, "--concurrency", "1"))
    planted = Planted({"ngram": Truth(0.8, 0.02)}, failing={"ngram k=4": "no memory"})
    play(monkeypatch, planted)
    states = [arm.state for arm in run_tuning(made, tmp_path, Display()).loads[0].arms]
    assert FAILED in states
    planted.failing, display = {}, Display()
    states = [arm.state for arm in run_tuning(made, tmp_path, display).loads[0].arms]
    assert FAILED in states
    assert "ngram k=4 failed at concurrency 1 (no memory): --retry-failed" in display.notes[-1]
    assert planted.num_measured
    again = run_tuning(made, tmp_path, Display(), retries_failed=True)
    assert FAILED not in [arm.state for arm in again.loads[0].arms]
    assert not any("no memory" in note for note in again.notes)
    assert b"no memory" in (tmp_path / "journal.jsonl").read_bytes()


def test_a_baseline_that_failed_is_tried_again_when_asked(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = short(plan(target, "--concurrency", "1"))
    planted = Planted({"ngram": Truth(0.8, 0.02)}, failing={"off": "no memory"})
    play(monkeypatch, planted)
    for _ in range(2):
        with pytest.raises(OptionError, match="no memory; when that is mended, --retry-failed"):
            run_tuning(made, tmp_path, Display())
    planted.failing = {}
    results = run_tuning(made, tmp_path, Display(), retries_failed=True)
    assert results.loads[0].verdict is not None


def test_memory_is_kept_only_where_that_is_wanted_and_said(target: str, tmp_path: Path) -> None:
    suffix = ("--methods", "suffix", "--concurrency", "1")
    made, kept = plan(target, *suffix), plan(target, *suffix, "--keep-memory")
    assert (made.settings.serving.forgets, kept.settings.serving.forgets) == (True, False)
    assert made.context.warnings == ()
    assert kept.context.warnings == ("answers of earlier requests were remembered (--keep-memory)",)
    assert kept.context.settings["keep_memory"] is True
    Journal(tmp_path / "journal.jsonl", made.header).close()
    with pytest.raises(OptionError, match=r"another keep_memory \(false, now true\)"):
        Journal(tmp_path / "journal.jsonl", kept.header)
    prompts = tmp_path / "three.jsonl"
    prompts.write_text("".join(f'{{"prompt": "Tell me of {each}."}}\n' for each in "abc"))
    few = ("--target", target, "--k", "2", "--concurrency", "1", "--prompts", str(prompts))
    settings = [RunSettings.from_options(find_command("tune").parse((*few, "--methods", each)))
                for each in ("suffix", "ngram")]  # fmt: skip
    note, none = (each.repeats_note(each.blocks.values()) for each in map(plan_run, settings))
    assert " requests repeat a prompt of their own block" in note
    assert none == "", "it remembers nothing"


def test_repeats_are_counted_in_blocks_that_have_their_size(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("--methods", "suffix", "--rate", "2", "--budget", "300s")
    made, answer = plan(target, *words), AnswerTime("2 requests/s", 10.0, 1.0)
    play(monkeypatch, Planted({"suffix": Truth(0.8, 0.02)}))
    monkeypatch.setattr(Lab, "measure_answer", lambda lab, load: answer)
    display = Display()
    results = run_tuning(made, tmp_path, display)
    sized = deal_requests(made.settings, made.prompts, {answer.load: answer})
    planned, sent = (sum(x.num_repeats for x in each.values()) for each in (made.blocks, sized))
    assert sent > planned, "answers take long, so blocks are larger than was planned"
    (note,) = (each for each in results.notes if "repeat a prompt" in each)
    assert note.startswith(f"up to {sent} of ")
    assert f"note: {note}" in display.notes


def test_what_our_engines_take_is_said_before_they_start(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = plan(target, "--methods", "ngram,suffix", "--concurrency", "1,4")
    assert made.keeping.memory.startswith("3 engines side by side take about 60")
    assert made.keeping.most is None
    play(monkeypatch, Planted({"ngram": Truth(0.8, 0.02), "suffix": Truth(0.9, 0.02)}))
    display = Display()
    run_tuning(made, tmp_path, display)
    assert display.notes[0] == made.keeping.memory
    monkeypatch.setattr(placing, "available_memory", lambda: 7 * 10**8)
    tight = plan(target, "--methods", "ngram,suffix", "--concurrency", "1,4")
    assert tight.keeping.most == 2
    assert "some are started again when needed" in tight.keeping.memory
    assert tight.header == made.header, "a run goes on whatever memory is free"


def test_an_engine_may_take_as_long_to_start_as_is_said(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[float] = []

    def starter(*_: Any, limit_s: float, **__: Any) -> Any:
        limits.append(limit_s)
        return lambda speculation, name: None

    monkeypatch.setattr(run_module, "engine_starter", starter)
    for flags in ((), ("--start-limit", "1h")):
        plan(target, *flags).lab(tmp_path).close()
    assert limits == [600, 3600]
    with pytest.raises(OptionError, match="--start-limit 'soon' is not a duration"):
        plan(target, "--start-limit", "soon")
    with pytest.raises(OptionError, match="--start-limit is for engines that are started here"):
        plan_run(RunSettings.from_options(find_command("tune").parse((
            "--off", "http://a:1", "--on", "ngram:k=4@http://b:1", "--start-limit", "1h",
        ))))  # fmt: skip


def test_engines_that_one_gpu_cannot_hold_are_dealt_to_two(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gib = 1 << 30
    monkeypatch.setattr(run_module, "backend_named", lambda name: VLLM)
    monkeypatch.setattr(placing, "gpu_memory", lambda: [(80 * gib, 77 * gib)] * 2)
    monkeypatch.setattr(placing, "gpu_ids", lambda: ["3", "5"])
    words = ("--engine", "vllm", "--methods", "ngram,draft_model", "--draft", target)
    made = plan(target, *words, "--k", "2,4")
    cards = made.search.cards
    assert made.keeping.most == 4
    assert cards.gpus == [("3",), ("5",)]
    assert {arm.method: cards.of(arm) for arm in made.search.arms} == {"ngram": 0, "draft_model": 1}
    assert any("2 cards (GPUs 3; 5)" in each for each in made.context.warnings)
    assert made.keeping.share == 0.9, "what was planned with is what engines are told"
    with made.lab(tmp_path) as lab:
        assert lab is not None
    busy = [(80 * gib, 77 * gib), (80 * gib, 20 * gib)]
    monkeypatch.setattr(placing, "gpu_memory", lambda: busy)
    beside = plan(target, *words, "--k", "2,4")
    assert (beside.keeping.how, beside.keeping.most) == (made.keeping.how, 4), "as if it were alone"
    assert not beside.search.cards.others
    monkeypatch.setattr(placing, "gpu_memory", lambda: busy[:1])
    monkeypatch.setattr(placing, "gpu_ids", lambda: ["3"])
    alone = plan(target, *words, "--k", "2,4")
    assert not alone.search.cards.others
    Journal(tmp_path / "journal.jsonl", made.header).close()
    with pytest.raises(OptionError):
        Journal(tmp_path / "journal.jsonl", {**made.header, "cards of engines": {}})


def test_another_engine_tries_few_draft_lengths_and_what_it_has(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "backend_named", backend_elsewhere)
    made = plan(target, "--engine", "sglang", "--methods", "suffix,ngram", "--k", "2..8")
    assert [arm.k for arm in made.search.arms] == [2, 4, 6, 8]
    assert not made.search.keeps_engines
    reasons = {each.name: each.reason for each in made.context.pruned}
    assert reasons["suffix"].startswith("SGLang has no method 'suffix'; valid: ")
    assert "only 2, 4, 6, 8 are tried" in reasons["k=3, 5, 7"]


def test_a_target_with_layers_of_its_own_has_arms_of_them(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "backend_named", backend_elsewhere)
    own = tiny_model(tmp_path / "own", "llama")
    config = json.loads((own / "config.json").read_text())
    (own / "config.json").write_text(json.dumps({**config, "num_nextn_predict_layers": 1}))
    words = ("--engine", "vllm", "--k", "1,3")

    def methods(name: str, *more: str) -> list[str]:
        words_of = ("--target", name, "--category", "chat", *words, *more)
        settings = RunSettings.from_options(find_command("tune").parse(words_of))
        return list(dict.fromkeys(arm.method for arm in plan_run(settings).search.arms))

    assert methods(str(own)) == ["ngram", "suffix", "mtp"]
    assert methods(target) == ["ngram", "suffix"], "a target without them has none"
    named = plan(target, *words, "--methods", "ngram,mtp,medusa")
    reasons = {each.name: each.reason for each in named.context.pruned}
    assert "has no layers for multi-token prediction" in reasons["mtp"]
    assert reasons["medusa"] == "no draft for it; name one with --draft"


def test_our_engine_says_who_has_a_method(target: str) -> None:
    made = plan(target, "--methods", "ngram,mtp")
    assert [each.reason for each in made.context.pruned] == [
        "outdraft has no method 'mtp'; valid: off, ngram, suffix, draft_model, eagle, auto; vLLM "
        "and SGLang have it"
    ]


def test_a_load_beyond_the_default_of_the_engine_gets_its_slots(target: str) -> None:
    made = plan(target, "--concurrency", "1,40")
    assert made.settings.serving.max_num_seqs == 40
    assert made.context.settings["max_num_seqs"] == 40, "the files and the page say so"
    given = plan(target, "--concurrency", "1,40", "--max-num-seqs", "64")
    assert given.settings.serving.max_num_seqs == 64
