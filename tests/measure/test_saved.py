from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from outdraft.decide.texts import Agreement
from outdraft.errors import OptionError, OutdraftError
from outdraft.measure.comparison import ComparisonSettings
from outdraft.measure.saved import compare_saved, in_blocks, read_trial, unknowns
from outdraft.records import Trial
from outdraft.whole_file import write_json

from .made import accepted, done, failed

TRIAL = Trial(
    "server",
    "http://here",
    {"concurrency": 4},
    (done(0, acceptance=accepted(2, 8, 6, (2, 2))), failed(1)),
    "2026-01-01T00:00:00+00:00",
    problems=("one failed",),
)


def test_the_same_requests_side_by_side_in_blocks() -> None:
    one = [done(index) for index in range(7)]
    other = [replace(each, arm="b", index=90 + each.index) for each in one[::-1]]
    first, second = in_blocks(one, other, 3)
    assert [each.prompt_id for each in first] == [each.prompt_id for each in second]
    places = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (2, 0)]
    assert [(each.block, each.index) for each in first] == places
    assert [(each.block, each.index) for each in second] == places
    assert [each.arm for each in second] == ["b"] * 7


def test_texts_that_were_cut_at_other_limits_are_not_compared() -> None:
    def saved(tokens: int, end: str = "length") -> Trial:
        text = "one two three four"[: tokens * 4]
        records = [done(n, text=text, completion_tokens=tokens, finish_reason=end)
                   for n in range(20)]  # fmt: skip
        return replace(TRIAL, records=tuple(records))

    def texts(one: Trial, other: Trial) -> Agreement | None:
        return compare_saved(one, other, 4, ComparisonSettings())[0].texts

    assert texts(saved(4), saved(2)) is None
    assert texts(saved(4), saved(4)) == Agreement(20, 20)
    shorter = texts(saved(4), saved(2, "stop"))
    assert shorter is not None
    assert (shorter.num_identical, shorter.first_differences[0]) == (0, 8)


def test_only_what_both_have() -> None:
    one = [done(index) for index in range(4)]
    hot = replace(one[3], temperature=0.8)
    warm = replace(one[2], is_warmup=True)
    first, second = in_blocks(one, [*one[:2], warm, hot], 12)
    assert [each.prompt_id for each in first] == ["p0", "p1"]
    assert len(second) == 2


def test_a_prompt_that_comes_twice_meets_its_own_turn() -> None:
    one = [done(0, e2e=10), done(0, e2e=20), done(1, e2e=30)]
    other = [done(0, e2e=11), done(1, e2e=33), done(0, e2e=22)]
    first, second = in_blocks(one, other, 12)
    assert [(a.e2e_ns or 0) / 1e6 for a in first] == [10, 20, 30]
    assert [(b.e2e_ns or 0) / 1e6 for b in second] == [11, 22, 33]


TOLD = {"concurrency": 4, "max_tokens": 8, "stop_at_eos": False, "prompts": "ab", "cpu": "a chip"}
IN_TURNS = "not in turns"


def of_load(**load: object) -> Trial:
    return replace(TRIAL, load={**TOLD, **load})


def test_two_saved_runs_say_what_they_cannot_know() -> None:
    [note] = unknowns(of_load(), of_load())
    assert IN_TURNS in note
    _, note = unknowns(of_load(), of_load(prompts="cd", concurrency=8, draft="d", slo={}))
    assert note == (
        "the two runs differ in concurrency (4, 8), prompts (ab, cd): that is in the ratio too"
    )
    one, other = replace(TRIAL, load={**TOLD, "cores": 2}), replace(TRIAL, load={"rate": 5.0})
    _, differs, unsaid = unknowns(one, other)
    assert "concurrency (4, None), rate (None, 5.0):" in differs
    assert unsaid == (
        "whether they had the same max_tokens, stop_at_eos, prompts, cpu is not in the files"
    )


def test_requests_without_a_twin_are_counted() -> None:
    one = replace(of_load(), records=tuple(done(n) for n in range(6)))
    other = replace(of_load(), records=tuple(done(n) for n in range(2, 9)))
    assert "4 requests" not in unknowns(one, other)[-1]
    assert unknowns(one, other)[-1].startswith("2 requests of the baseline and 3 of the candidate")


def test_nothing_in_common() -> None:
    with pytest.raises(OptionError, match="no request in common; use the same prompts and seed"):
        in_blocks([done(0)], [done(1)], 12)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "new" / "run.json"
    write_json(path, TRIAL.to_json())
    assert read_trial(path) == TRIAL
    assert [each.name for each in path.parent.iterdir()] == ["run.json"]


def test_whole_or_not_at_all(tmp_path: Path) -> None:
    """What cannot be written leaves the old file as it was, and nothing beside it."""
    path = tmp_path / "run.json"
    write_json(path, TRIAL.to_json())
    with pytest.raises(TypeError):
        write_json(path, {"first": 1, "then": object()})
    assert read_trial(path) == TRIAL
    assert [each.name for each in tmp_path.iterdir()] == ["run.json"]


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "file" / "run.json", tmp_path / "folder", Path("/proc/run.json")):
        with pytest.raises(OutdraftError, match=f"cannot write {path}: ") as error:
            write_json(path, {})
        assert "\n" not in str(error.value)
    assert {each.name for each in tmp_path.iterdir()} == {"file", "folder"}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"schema": 2, "records": []}', "schema 2, this version reads 1"),
        ("{}", "schema None"),
        ('{"schema": 1}', "records"),
        ('{"schema": 1, "records": [], "verdict": {}}', "verdict"),
        ('{"schema": 1, "records": [{"prompt": 1}]}', "prompt"),
        ("[1]", "no saved run"),
        ("{", "no saved run"),
        ("", "no saved run"),
    ],
)
def test_what_is_no_saved_run(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "run.json"
    path.write_text(content)
    with pytest.raises(OptionError, match="make one with bench --out") as error:
        read_trial(path)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_bytes_that_are_no_text_and_no_file(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(OptionError, match="is no saved run"):
        read_trial(path)
    with pytest.raises(OptionError, match=r"cannot read .*: No such file"):
        read_trial(tmp_path / "nothing.json")


def test_a_run_that_another_version_added_to(tmp_path: Path) -> None:
    """What one does not know may change what the rest means: it is refused, not ignored."""
    data = {**TRIAL.to_json(), "new": 1}
    path = tmp_path / "run.json"
    path.write_text(json.dumps(data, default=list))
    with pytest.raises(OptionError, match="new"):
        read_trial(path)
