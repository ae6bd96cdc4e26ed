"""Speculations read from files."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from outdraft.emit.settings import read_speculation
from outdraft.errors import OptionError
from outdraft.speculation import Speculation

NGRAM = '{"method": "ngram", "num_speculative_tokens": 4}'


def test_json_toml_standard_input_and_a_file_of_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = Speculation("ngram", k=4)
    toml = tmp_path / "best.toml"
    toml.write_text('method = "ngram"\nk = 4\n')
    assert read_speculation(str(toml)) == wanted
    inner = tmp_path / "inner.json"
    inner.write_text(json.dumps({"speculation": json.loads(NGRAM), "arm": "x"}))
    assert read_speculation(str(inner)) == wanted
    served = tmp_path / "outdraft.toml"
    served.write_text(f"[serve]\ntarget = 'x'\nspeculative_config = {json.dumps(NGRAM)}\n")
    assert read_speculation(str(served)) == wanted
    served.write_text("[serve]\ntarget = 'x'\n")
    assert read_speculation(str(served)).is_off
    monkeypatch.setattr("sys.stdin", io.StringIO(NGRAM))
    assert read_speculation("-") == wanted


@pytest.mark.parametrize("text", ["{", "method = ", "[1, 2]", '"ngram"'])
def test_what_is_no_speculation_is_said_in_a_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "bad"
    file.write_text(text)
    with pytest.raises(OptionError) as refused:
        read_speculation(str(file))
    assert "bad" in str(refused.value)
    assert "\n" not in str(refused.value)
