"""Finding out what a vLLM can do."""

from __future__ import annotations

from pathlib import Path

import pytest

from outdraft.backends.installation import version_numbers
from outdraft.backends.vllm.installation import KEY, TABLE, detect
from outdraft.errors import BackendError, OptionError

HELPFUL = """\
#!/bin/sh
# A build without the modules that are asked first: its own words are all there is.
if [ "$1" = --version ]; then echo "vllm 0.25.1+cpu"; exit 0; fi
echo "  --speculative-config, -sc JSON"
echo "  --max-num-seqs N"
"""


def test_options_come_with_their_version() -> None:
    assert not TABLE.installation("0.23.0").has(KEY + "num_speculative_tokens_per_batch_size")
    assert TABLE.installation("0.24.0").has(KEY + "num_speculative_tokens_per_batch_size")
    assert TABLE.installation("0.32.0").has("--per-request-spec-decode-metrics")
    assert TABLE.installation().version == TABLE.newest


def test_an_unknown_version_says_what_to_do() -> None:
    with pytest.raises(OptionError, match=r"0\.22\.0"):
        TABLE.installation("0.6.3")
    with pytest.raises(OptionError, match="no version"):
        TABLE.installation("newest")


def test_versions_are_compared_as_numbers() -> None:
    assert version_numbers("0.32.0+cpu") == (0, 32, 0)
    assert TABLE.installation("0.22").version == "0.22"
    assert version_numbers("v0.9.2") < version_numbers("0.10.0rc1")


def test_a_build_that_cannot_be_asked_is_read_by_its_help(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "vllm"
    program.write_text(HELPFUL)
    program.chmod(0o755)
    monkeypatch.setenv("OUTDRAFT_VLLM", str(program))
    installation = detect()
    assert installation.version == "0.25.1+cpu"
    assert installation.has("--max-num-seqs")
    assert installation.has(KEY + "num_speculative_tokens_per_batch_size")
    assert installation.is_cpu


def test_a_name_that_is_no_program_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTDRAFT_VLLM", "/nowhere/vllm")
    with pytest.raises(BackendError, match="OUTDRAFT_VLLM"):
        detect()
