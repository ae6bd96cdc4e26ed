"""`outdraft tune` with real llama.cpp and vLLM on the CPU: engines stay up, or are visited one
after the other, and kills lose nothing and leave nothing behind."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from outdraft.backends.llamacpp import installation as llamacpp_installation
from outdraft.testing.tiny_models import tiny_gguf
from tests.engines.killed import Blocks, Killable
from tests.engines.places import llama_server, smollm2_folder, vllm

pytestmark = pytest.mark.engines

NOUNS = (
    "river", "stone", "cloud", "apple", "train", "music", "garden", "window", "summer", "letter",
    "bridge", "market", "winter", "forest", "silver", "doctor", "island", "paper", "hill", "boat",
)  # fmt: skip
VISITS, SIDE_BY_SIDE = ("--keep-engines", "visits"), ("--keep-engines", "side-by-side")


def small(tmp_path: Path) -> tuple[str, ...]:
    """Short prompts and answers, few of them: what is looked at here is what runs, and when."""
    path = tmp_path / "prompts.jsonl"
    pairs = [(one, other) for one in NOUNS for other in NOUNS if one < other]
    lines = [{"prompt": f"{one} {other} {one} {other} {one}"} for one, other in pairs]
    path.write_text("".join(f"{json.dumps(each)}\n" for each in lines))
    return (
        "--prompts", str(path), "--max-tokens", "8", "--block", "2",
        "--threads", "1", "--max-model-len", "512",
    )  # fmt: skip


def llamacpp_run(tmp_path: Path, *flags: str) -> Killable:
    """A tiny model, and itself as its draft: a block takes a twentieth of a second."""
    model = str(tiny_gguf(tmp_path / "tiny.gguf", context=2048))
    own = (
        "--engine", "llamacpp", "--target", model, "--draft", model, "--methods", "draft_model",
        "--draft-quantization", "none", "--k", "2,4", "--budget", "4m",
    )  # fmt: skip
    env = {llamacpp_installation.VARIABLE: str(llama_server())}
    return Killable(tmp_path / "out", (*own, *small(tmp_path), *flags), env)


def vllm_run(tmp_path: Path, *flags: str) -> Killable:
    """Few layers. It starts in 40 to 60 s whatever the model is, so there is one draft length."""
    own = (
        "--engine", "vllm", "--target", str(smollm2_folder(6)), "--methods", "ngram", "--k", "4",
        "--budget", "40m",
        "--max-num-seqs", "2", "--dtype", "float32", "--engine-flags=--enforce-eager",
    )  # fmt: skip
    env = {"OUTDRAFT_VLLM": str(vllm())}
    return Killable(tmp_path / "out", (*own, *small(tmp_path), *flags), env)


def check_finished(run: Killable, *, num_loads: int) -> None:
    """Everything was judged, nothing measured twice, nothing left."""
    keys = [(each["load"], each["arm"], each["block"]) for each in run.blocks()]
    again = [key for key, each in zip(keys, run.blocks(), strict=True) if each["is_again"]]
    first = [key for key, each in zip(keys, run.blocks(), strict=True) if not each["is_again"]]
    assert len(set(first)) == len(first), "nothing is measured twice"
    # Where another program used the cores, a pair is measured once more.
    assert len(set(again)) == len(again)
    assert set(again) <= set(first)
    assert not [each for each in run.entries() if "failure" in each]
    verdicts = [load["verdict"] for load in run.results()["loads"]]
    assert len(verdicts) == num_loads
    assert None not in verdicts
    assert run.left() == []


def of_final(blocks: Blocks, arm: str) -> Blocks:
    return [each for each in blocks if "final" in each["load"] and each["arm"] == arm]


def num_of_final(blocks: Blocks) -> int:
    return sum("final" in each["load"] for each in blocks)


def visits_of(blocks: Blocks) -> list[str]:
    """Whose engine was up, from the final's first block to its last."""
    order = [each["arm"] for each in blocks if "final" in each["load"]]
    return [arm for at, arm in enumerate(order) if at == 0 or order[at - 1] != arm]


def starts_of(blocks: Blocks) -> Counter[str]:
    return Counter(each["arm"] for each in blocks if each["start_s"] > 0)


def check_visits(run: Killable) -> None:
    visits = visits_of(run.blocks())
    best = visits[1]
    assert best != "off"
    assert visits == ["off", best, "off", best, "off"]
    assert len(of_final(run.blocks(), "off")) == 2 * len(of_final(run.blocks(), best))


def is_first_visit_over(blocks: Blocks) -> bool:
    """Of the arm: as many blocks as off had."""
    off = len(of_final(blocks, "off"))
    return 0 < off == num_of_final(blocks) - off


def is_second_visit(blocks: Blocks) -> bool:
    """Of the arm: it has begun."""
    return len(visits_of(blocks)) == 4


def test_llamacpp_side_by_side_each_engine_is_started_once(tmp_path: Path) -> None:
    run = llamacpp_run(tmp_path, "--concurrency", "1,2")
    run.run()
    check_finished(run, num_loads=2)
    starts = starts_of(run.blocks())
    leaders = {load["best"] for load in run.results()["loads"]}
    # Of two equal processes the older may be slower: off is started again beside a younger leader.
    assert starts.pop("off") <= 1 + len(leaders)
    assert set(starts.values()) == {1}, starts
    assert starts.keys() >= leaders


def test_llamacpp_side_by_side_killed_at_five_moments(tmp_path: Path) -> None:
    run = llamacpp_run(tmp_path, "--concurrency", "1")
    run.run_until(lambda blocks: True, later_s=0.3)  # while off starts
    run.run_until(lambda blocks: len(blocks) >= 1, later_s=0.2)  # while an arm starts
    run.run_until(lambda blocks: len(blocks) >= 5)
    run.run_until(lambda blocks: num_of_final(blocks) >= 1)
    run.run_until(lambda blocks: num_of_final(blocks) >= 8)
    run.run()
    check_finished(run, num_loads=1)


def test_llamacpp_in_visits_killed_at_five_moments(tmp_path: Path) -> None:
    run = llamacpp_run(tmp_path, "--concurrency", "1", *VISITS)
    run.run_until(lambda blocks: True, later_s=0.3)
    run.run_until(lambda blocks: len(blocks) >= 1, later_s=0.2)
    run.run_until(lambda blocks: num_of_final(blocks) >= 2)
    run.run_until(is_first_visit_over)
    run.run_until(is_second_visit)
    run.run()
    check_finished(run, num_loads=1)
    check_visits(run)


def test_vllm_side_by_side_killed_at_five_moments(tmp_path: Path) -> None:
    run = vllm_run(tmp_path, "--concurrency", "1", *SIDE_BY_SIDE)
    run.run_until(lambda blocks: True, later_s=5)  # while off starts
    run.run_until(lambda blocks: len(blocks) >= 1, later_s=5)  # while the arm starts
    run.run_until(lambda blocks: len(blocks) >= 5)
    run.run_until(lambda blocks: num_of_final(blocks) >= 1)
    run.run_until(lambda blocks: num_of_final(blocks) >= 8)
    run.run()
    check_finished(run, num_loads=1)


def test_vllm_in_visits_killed_at_five_moments(tmp_path: Path) -> None:
    run = vllm_run(tmp_path, "--concurrency", "1", *VISITS)
    run.run_until(lambda blocks: True, later_s=3.0)
    run.run_until(lambda blocks: len(blocks) >= 1, later_s=3.0)
    run.run_until(lambda blocks: num_of_final(blocks) >= 2)
    run.run_until(is_first_visit_over, later_s=3.0)
    run.run_until(is_second_visit)
    run.run()
    check_finished(run, num_loads=1)
    check_visits(run)
