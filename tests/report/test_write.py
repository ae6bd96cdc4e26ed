from __future__ import annotations

import json
from pathlib import Path

import pytest

from outdraft.errors import OptionError, OutdraftError
from outdraft.report.page import page
from outdraft.report.write import read_results, rebuild_report, write_report
from outdraft.whole_file import write_json
from tests.report.odd_results import ODD
from tests.report.sample_results import sample_results


def test_written_and_made_again(tmp_path: Path) -> None:
    results = sample_results()
    write_json(tmp_path / "results.json", results.to_json())
    write_report(results, tmp_path / "report.html")
    first = (tmp_path / "report.html").read_text()
    assert first == page(results, ["results.json"])
    path, again = rebuild_report(tmp_path)
    assert path == tmp_path / "report.html"
    assert again.acceptance == results.acceptance
    assert path.read_text() == first
    assert {each.name for each in tmp_path.iterdir()} == {"results.json", "report.html"}


def test_files_beside_it_are_named(tmp_path: Path) -> None:
    (tmp_path / "vllm.sh").write_text("")
    (tmp_path / "sglang.sh").mkdir()  # no file
    write_report(sample_results(), tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert 'href="vllm.sh"' in text
    assert 'href="sglang.sh"' not in text


@pytest.mark.parametrize("name", sorted(set(ODD) - {"hostile_names"}))
def test_odd_results_come_back_from_json(name: str, tmp_path: Path) -> None:
    """(Half a surrogate, as in the hostile ones, is nothing that JSON's own writer makes.)"""
    results = ODD[name]()
    write_json(tmp_path / "results.json", results.to_json())
    assert page(read_results(tmp_path / "results.json")) == page(results)


def test_what_is_no_result(tmp_path: Path) -> None:
    whole = json.dumps(sample_results().to_json())
    cases = {
        "": "damaged (JSONDecodeError",
        whole[: len(whole) // 2]: "damaged (JSONDecodeError",
        "[1]": "damaged (AttributeError",
        "{}": "no results of a tuning run: kind None",
        whole.replace('"schema": 1', '"schema": 2', 1): "schema 2; this version reads",
        whole.replace(
            '"loads"', '"lasts"', 1
        ): "damaged (TypeError: Results.__init__() missing 1 required positional argument: 'loads'",
        whole.replace('"backend"', '"front"', 1): "damaged (TypeError",
        whole.replace('"estimate": ', '"estimate": "a", "x": '): "damaged (TypeError",
        whole.replace('"concurrency": 1,', '"concurrency": 1, "new": 0,', 1): "",
    }
    for at, (content, said) in enumerate(cases.items()):
        folder = tmp_path / str(at)
        folder.mkdir()
        (folder / "results.json").write_text(content)
        (folder / "report.html").write_text("old")
        with pytest.raises(OptionError) as error:
            rebuild_report(folder)
        assert str(folder / "results.json") in str(error.value)
        assert said in str(error.value)
        assert "\n" not in str(error.value)
        assert (folder / "report.html").read_text() == "old"


def test_values_of_the_wrong_kind(tmp_path: Path) -> None:
    data = sample_results().to_json()
    data["duration_s"] = "long"
    write_json(tmp_path / "results.json", data)
    with pytest.raises(OptionError, match="is damaged"):
        rebuild_report(tmp_path)


def test_no_such_folder_and_bytes(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"cannot read .*: No such file .* `outdraft tune"):
        rebuild_report(tmp_path / "nothing")
    (tmp_path / "results.json").write_bytes(b"\xff\xfe")
    with pytest.raises(OptionError, match="is damaged"):
        rebuild_report(tmp_path)


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    write_json(tmp_path / "results.json", sample_results().to_json())
    with pytest.raises(OutdraftError, match="cannot write"):
        rebuild_report(tmp_path, tmp_path / "results.json" / "report.html")
