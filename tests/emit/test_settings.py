"""Speculations read from files."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from outdraft.backends.backend import Serving
from outdraft.cli.main import find_command
from outdraft.emit.settings import read_file, serving_from
from outdraft.errors import OptionError
from outdraft.speculation import Speculation

OLD_OFF = "# Speculation stays off: nothing clearly pays for all of this traffic.\n"
NGRAM = '{"method": "ngram", "num_speculative_tokens": 4}'


def speculation_of(name: str) -> Speculation:
    return read_file(name).speculation


def served_by(engine: str, file: Path, *flags: str) -> tuple[Serving, tuple[str, ...]]:
    asked = ["--speculation", str(file), "--engine", engine, *flags]
    return serving_from(find_command("emit").parse(asked), read_file(str(file)))


def test_json_toml_standard_input_and_a_file_of_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = Speculation("ngram", k=4)
    toml = tmp_path / "best.toml"
    toml.write_text('method = "ngram"\nk = 4\n')
    assert speculation_of(str(toml)) == wanted
    inner = tmp_path / "inner.json"
    inner.write_text(json.dumps({"speculation": json.loads(NGRAM), "arm": "x"}))
    assert speculation_of(str(inner)) == wanted
    served = tmp_path / "outdraft.toml"
    served.write_text(f"[serve]\ntarget = 'x'\nspeculative_config = {json.dumps(NGRAM)}\n")
    assert speculation_of(str(served)) == wanted
    monkeypatch.setattr("sys.stdin", io.StringIO(NGRAM))
    assert speculation_of("-") == wanted


@pytest.mark.parametrize("text", ["{", "method = ", "[1, 2]", '"ngram"'])
def test_what_is_no_speculation_is_said_in_a_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "bad"
    file.write_text(text)
    with pytest.raises(OptionError) as refused:
        speculation_of(str(file))
    assert "bad" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_it_may_be_given_as_it_is() -> None:
    assert speculation_of(NGRAM) == Speculation("ngram", k=4)
    with pytest.raises(OptionError, match=r"^--speculation is neither JSON nor TOML"):
        speculation_of('{"method": ')


def test_options_of_our_server_say_how_to_speculate(tmp_path: Path) -> None:
    file = tmp_path / "outdraft.toml"
    file.write_text("[serve]\nmethod = 'off'\n")
    assert speculation_of(str(file)).is_off
    file.write_text(
        "[serve]\nmethod = 'eagle'\ndraft = 'org/head'\nk = 3\ndraft-quantization = 'int8'\n"
        "quantization = 'int4'\n"
    )
    wanted = Speculation("eagle", k=3, draft="org/head", quantization="int8")
    assert speculation_of(str(file)) == wanted
    file.write_text(f"[serve]\nk = 3\nspeculative_config = {json.dumps(NGRAM)}\n")
    with pytest.raises(OptionError, match="speculative_config and k"):
        speculation_of(str(file))


def test_a_file_that_says_nothing_is_not_taken_for_off(tmp_path: Path) -> None:
    """Our server would choose by the machine."""
    file = tmp_path / "outdraft.toml"
    file.write_text("[serve]\ntarget = 'x'\n")
    with pytest.raises(OptionError, match="no method under"):
        speculation_of(str(file))
    file.write_text("[serve]\ndraft = 'org/x'\n")
    with pytest.raises(OptionError, match="no method under"):
        speculation_of(str(file))
    file.write_text("[serve]\ntarget = 'x'\n" + OLD_OFF)
    assert speculation_of(str(file)).is_off, "as tuning runs of earlier versions wrote it"


def test_what_was_measured_is_served(tmp_path: Path) -> None:
    file = tmp_path / "outdraft.toml"
    file.write_text(
        "[serve]\ntarget = 'org/x'\nmax_num_seqs = 64\nmax_model_len = 4096\ndtype = 'bfloat16'\n"
        "threads = 2\nmax_num_batched_tokens = 256\nno_enable_prefix_caching = true\n"
        "admin_key = 'SECRET'\nmethod = 'off'\n"
    )
    serving, notes = served_by("outdraft", file)
    assert serving == Serving(
        "org/x",
        max_model_len=4096,
        max_num_seqs=64,
        dtype="bfloat16",
        threads=2,
        extra=("--max-num-batched-tokens", "256", "--no-enable-prefix-caching"),
    )
    assert len(notes) == 2
    assert "max_num_seqs 64" in notes[0]
    assert notes[1] == f"not taken from {file}: admin_key"
    serving, notes = served_by("vllm", file)
    assert serving == Serving("org/x", max_model_len=4096, max_num_seqs=64)
    left_out = "not taken from "
    assert notes[1].startswith(left_out)
    for key in ("dtype", "threads", "max_num_batched_tokens", "admin_key"):
        assert key in notes[1]
    assert "SECRET" not in "".join(notes)


def test_options_win_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "outdraft.toml"
    file.write_text("[serve]\ntarget = 'org/x'\nmax_num_seqs = 64\nmethod = 'off'\n")
    serving, notes = served_by("vllm", file, "--target", "org/y", "--max-num-seqs", "8")
    assert serving == Serving("org/y", max_num_seqs=8)
    assert not notes
    file.write_text(NGRAM)
    assert served_by("vllm", file)[0] == Serving("smollm2-135m")


def test_another_engines_flags_are_for_that_engine(tmp_path: Path) -> None:
    file = tmp_path / "outdraft.toml"
    file.write_text(
        "[serve]\ntarget = 'org/x'\nmethod = 'off'\n[emit]\nengine = 'vllm'\n"
        "dtype = 'half'\ntensor_parallel_size = 2\nengine_flags = '--enforce-eager'\n"
    )
    serving, _ = served_by("vllm", file)
    assert serving.tensor_parallel_size == 2
    assert (serving.dtype, serving.extra) == ("half", ("--enforce-eager",))
    serving, notes = served_by("sglang", file)
    assert serving == Serving("org/x")
    assert notes[1].endswith(": dtype, tensor_parallel_size, engine_flags")
    file.write_text(file.read_text().replace("[emit]", "threads = 2\n[emit]"))
    serving, notes = served_by("outdraft", file)
    assert serving == Serving("org/x", threads=2), "ours stand in the other section"
    assert notes[1].endswith(": dtype, tensor_parallel_size, engine_flags")


def test_a_wrong_value_is_said_with_its_file(tmp_path: Path) -> None:
    file = tmp_path / "outdraft.toml"
    file.write_text("[serve]\nmax_num_seqs = 'many'\nmethod = 'off'\n")
    with pytest.raises(OptionError, match=r"outdraft.toml: max_num_seqs cannot be 'many'"):
        served_by("vllm", file)
