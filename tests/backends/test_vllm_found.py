"""Finding out what a vLLM can do."""

from __future__ import annotations

from pathlib import Path

import pytest

from outdraft.backends.vllm_found import KEY, NEWEST, OLDEST, detect, known, numbers
from outdraft.errors import BackendError, OptionError

HELPFUL = """\
#!/bin/sh
# A build without the modules that are asked first: its own words are all there is.
if [ "$1" = --version ]; then echo "vllm 0.25.1+cpu"; exit 0; fi
echo "  --speculative-config, -sc JSON"
echo "  --max-num-seqs N"
"""


def test_options_come_with_their_version() -> None:
    assert not known("0.23.0").has(KEY + "num_speculative_tokens_per_batch_size")
    assert known("0.24.0").has(KEY + "num_speculative_tokens_per_batch_size")
    assert known("0.32.0").has("--per-request-spec-decode-metrics")
    assert known().installed.version == NEWEST


def test_an_unknown_version_says_what_to_do() -> None:
    with pytest.raises(OptionError, match=OLDEST):
        known("0.6.3")
    with pytest.raises(OptionError, match="no version"):
        known("newest")


def test_versions_are_compared_as_numbers() -> None:
    assert numbers("0.32.0+cpu") == (0, 32, 0)
    assert known("0.22").installed.version == "0.22"
    assert numbers("v0.9.2") < numbers("0.10.0rc1")


def test_a_build_that_cannot_be_asked_is_read_by_its_help(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "vllm"
    program.write_text(HELPFUL)
    program.chmod(0o755)
    monkeypatch.setenv("OUTDRAFT_VLLM", str(program))
    found = detect()
    assert found.installed.version == "0.25.1+cpu"
    assert found.has("--max-num-seqs")
    assert found.has(KEY + "num_speculative_tokens_per_batch_size")
    assert found.is_cpu


def test_a_name_that_is_no_program_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTDRAFT_VLLM", "/nowhere/vllm")
    with pytest.raises(BackendError, match="OUTDRAFT_VLLM"):
        detect()
