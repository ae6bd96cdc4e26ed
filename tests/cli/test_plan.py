"""`outdraft plan`: what it prints, and what it says about input that cannot be used."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from outdraft.cli.main import main
from outdraft.testing.tiny_models import tiny_model

OUTDRAFT = (sys.executable, "-m", "outdraft", "plan")
PAIR = ("--target", "llama-3.1-70b", "--draft", "llama-3.1-8b", "--gpu", "h100:2")


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs it in this process: the exit code, stdout and stderr."""

    def run(*words: str) -> tuple[int, str, str]:
        code = main(["plan", *words])
        caught = capsys.readouterr()
        return code, caught.out, caught.err

    return run


def test_a_pair_on_two_gpus(told: Any) -> None:
    code, said, complaint = told(*PAIR, "--target-quantization", "int8", "--max-model-len", "8192")
    assert (code, complaint) == (0, "")
    for part in (
        "target   llama-3.1-70b (table): 70.6B parameters, int8, 72.7 GB",
        "KV tokens                230,480     122,016       -47%",
        "█ target  ▓ draft  ▒ reserve  ░ KV cache",
        "serves: 14.9 texts of 8,192 tokens at once; the longest text that fits has 122,016 tokens",
        "  --max-num-seqs 16, as few full-length texts fit at once: 131,536 KV tokens (+8%)",
        "counted for vLLM with: --max-model-len 8192 --max-num-seqs 256 ",
        "the same for emit: --max-model-len 8192 --max-num-seqs 256 --tensor-parallel-size 2 "
        '--engine-flags "--max-num-batched-tokens 8192 --gpu-memory-utilization 0.92"',
        "draft memory: 9.4% (wanted: at most 15% of memory)",
        "size ratio: 1:8.8",
        "bf16     bf16  157.2 GB   13.9 GB     21,664           0   -100%      no",
    ):
        assert part in said
    assert "\x1b" not in said


def test_the_same_as_json(told: Any) -> None:
    code, said, complaint = told(*PAIR, "--json")
    assert (code, complaint, said.count("\n")) == (0, "", 1)
    found = json.loads(said)
    assert found["serves"] is False
    assert found["devices"] == {
        "name": "h100",
        "count": 2,
        "bytes_each": 81_559 << 20,
        "bytes": 2 * 81_559 << 20,
    }
    assert found["headline"]["with_draft"]["kv_cache_bytes"] < 0
    assert {rule["name"]: rule["state"] for rule in found["rules"]} == {
        "target_memory": "warn",
        "draft_memory": "ok",
        "headroom": "warn",
    }
    assert found["pairing"]["size_ratio"] == pytest.approx(8.79, abs=0.01)
    assert len(found["mixes"]) == 16


def test_the_documented_output_is_what_is_printed(told: Any) -> None:
    text = (Path(__file__).parents[2] / "docs" / "planning.md").read_text()
    shown = re.findall(r"```\noutdraft plan (.+?)\n```\n\n```text\n(.+?)\n```", text, re.DOTALL)
    assert len(shown) == 2
    for command, output in shown:
        assert output in told(*command.split())[1]


def test_without_a_length_it_goes_on_with_a_usual_one(told: Any) -> None:
    _, said, _ = told(*PAIR, "--target-quantization", "int8")
    assert "of 8,192 tokens at most" in said
    assert "note: texts of 8,192 tokens are planned, as --max-model-len is not given" in said
    mixes = [line.split()[-1] for line in said[said.index("every mix") :].splitlines()[2:18]]
    assert mixes == ["no"] * 4 + ["yes"] * 12
    _, said, _ = told(*PAIR, "--max-model-len", "131072")
    assert "is not given" not in said
    assert "of 131,072 tokens at most" in said


def test_suggestions(told: Any) -> None:
    _, said, _ = told("--target", "qwen3-32b", "--gpu", "h200", "--suggest")
    lines = said[said.index("drafts for qwen3-32b") :].splitlines()
    assert lines[1].split()[0] == "qwen3-4b"
    assert "1:8 is the usual ratio" in lines[1]


def test_without_memory_the_sizes_alone(told: Any) -> None:
    code, said, _ = told("--target", "llama-3.1-8b")
    assert code == 0
    assert "bf16    16.1 GB" in said
    assert "give --gpu or --memory" in said


@pytest.mark.model
def test_the_cache_that_vllm_reports(told: Any, smollm2_path: Path) -> None:
    _, said, _ = told(
        "--target", "smollm2-135m", "--kv-dtype", "float32", "--kv-cache-memory-bytes", "1GiB"
    )
    assert "SmolLM2" not in said
    assert "as the files are, 96.6 MB" in said
    assert any(line.split() == ["KV", "tokens", "23,296"] for line in said.splitlines())


def test_folders_with_their_tokenizers(told: Any, tmp_path: Path) -> None:
    target = tiny_model(tmp_path / "target", "qwen3", layers=8)
    draft = tiny_model(tmp_path / "draft", "qwen3", layers=1)
    code, said, _ = told("--target", str(target), "--draft", str(draft), "--memory", "24GB")
    assert code == 0
    assert "ok      vocabulary: 384 tokens, all equal" in said
    assert "ok      chat template: equal" in said


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ((), "--target is missing"),
        (("--target", "nonsuch"), "unknown model 'nonsuch'"),
        (("--target", "./nowhere"), "no file or folder at ./nowhere"),
        ((*PAIR[:4], "--gpu", "h101"), "unknown GPU 'h101' (did you mean 'h100'?); valid: h100"),
        ((*PAIR[:4], "--memory", "lots"), "--memory takes a size such as 80GB"),
        ((*PAIR, "--memory", "80GB"), "--gpu and --memory both"),
        ((*PAIR, "--k", "0"), "--k must be at least 1"),
        ((*PAIR, "--k", "many"), "'many'"),
        ((*PAIR, "--utilization", "2"), "--utilization"),
        ((*PAIR, "--kv-dtype", "int3"), "unknown KV dtype 'int3'"),
        ((*PAIR, "--target-quantization", "int3"), "unknown quantization 'int3'"),
        ((*PAIR, "--draft-sample-method", "lucky"), "'lucky'; valid: probabilistic, greedy"),
        ((*PAIR, "--draft-tensor-parallel-size", "3"), "must be 1 or the number of devices (2)"),
        ((*PAIR[:3], "qwen3-8b", "--json"), "qwen3-8b cannot draft for llama-3.1-70b"),
        (("--target", "smollm2-360m", "--gpu", "l4:2"), "do not divide over 2 devices"),
    ],
)
def test_input_that_cannot_be_used(told: Any, words: tuple[str, ...], named: str) -> None:
    code, said, complaint = told(*words)
    assert (code, said) == (2, "")
    assert complaint.startswith("outdraft: ")
    assert complaint.count("\n") == 1
    assert named in complaint


def test_a_config_without_a_needed_field(told: Any, tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "model", "llama") / "config.json"
    config = json.loads(path.read_text())
    del config["num_hidden_layers"]
    path.write_text(json.dumps(config))
    code, said, complaint = told("--target", str(path.parent))
    assert (code, said) == (2, "")
    assert f"{path} lacks the key 'num_hidden_layers'" in complaint
    assert complaint.count("\n") == 1


def test_a_draft_with_other_tokens_says_which(told: Any, tmp_path: Path) -> None:
    target = tiny_model(tmp_path / "target", "llama")
    draft = tiny_model(tmp_path / "draft", "llama", vocab=300)
    code, said, complaint = told("--target", str(target), "--draft", str(draft))
    assert (code, said) == (2, "")
    assert "the first that differs is id 300" in complaint
    assert complaint.count("\n") == 1


def test_colour_on_a_terminal_and_ascii_where_nothing_else_goes() -> None:
    ours, theirs = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"}
    subprocess.run([*OUTDRAFT, *PAIR], stdout=theirs, env=env, timeout=60, check=True)
    os.close(theirs)
    assert "\x1b[" in os.read(ours, 1 << 16).decode()
    os.close(ours)
    done = subprocess.run(
        [*OUTDRAFT, "--target", "llama-3.1-8b", "--gpu", "h100"],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii:replace"},
        timeout=60,
        check=True,
    )
    assert b"without    ###########" in done.stdout
    assert b"# target  - reserve  . KV cache" in done.stdout


HELP = """
import sys
from outdraft.cli.main import main
try:
    main(["plan", "--help"])
finally:
    heavy = {"torch", "transformers", "numpy", "rich", "gguf", "outdraft.plan"}
    print("HEAVY", sorted(heavy & set(sys.modules)))
"""


def test_help_is_light_and_has_examples() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HELP], capture_output=True, text=True, timeout=60, check=True
    )
    assert "HEAVY []" in done.stdout
    assert "outdraft plan --target llama-3.1-70b --draft llama-3.1-8b --gpu h100:2" in done.stdout
