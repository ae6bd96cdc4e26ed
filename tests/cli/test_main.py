"""The table of commands: help, misspellings, packages that are missing."""

from __future__ import annotations

import subprocess
import sys

import pytest

from outdraft.cli.command import HELP
from outdraft.cli.main import COMMANDS, find_command, main
from outdraft.cli.unknown_flags import _OTHER_NAMES

# Every flag of version 0.1.0, by command: all of them stay understood.
FLAGS = {
    "generate": """
        color compare device draft draft-quantization dtype frequency-penalty ignore-eos
        json k kv-cache-memory-bytes logit-bias max-model-len max-tokens method min-p
        min-tokens presence-penalty prompt-lookup-max prompt-lookup-min quantization raw
        repetition-penalty rule runs seed stop target temperature threads top-k top-p
    """,
    "serve": """
        access-log api-key config device draft draft-quantization drain-timeout dtype
        enable-per-request-metrics host k kv-cache-memory-bytes max-model-len
        max-num-batched-tokens max-num-seqs max-num-waiting method ngram-prompt-lookup-max
        ngram-prompt-lookup-min no-enable-prefix-caching num-speculative-tokens port
        prompt-lookup-max prompt-lookup-min quantization rule served-model-name
        spec-decoding-acceptance-method speculative-config speculative-disable-by-batch-size
        speculative-draft-tensor-parallel-size speculative-model
        speculative-model-quantization target threads
        typical-acceptance-sampler-posterior-alpha
        typical-acceptance-sampler-posterior-threshold
    """,
    "bench": """
        api-key burstiness category concurrency force-random json max-tokens model out
        processes prompts ramp-to rate replay replay-speed requests seed slo temperature
        warmup
    """,
    "compare": """
        api-key block category concurrency force-random json margin max-tokens model
        noise-floor out plan prompts requests seed temperature ttft-bound
    """,
    "tune": """
        acceptance backend block budget category concurrency config draft draft-quantization
        dtype engine-flags gpu json k margin max-model-len max-num-seqs max-tokens methods
        objective out prompts rate seed slo target temperature tensor-parallel-size threads
    """,
    "watch": """
        act act-command act-dir admin-key api-key baseline config dns events for
        gpu-hour-cost interval json listen prometheus since state targets ui webhook
        webhook-secret window write-boards
    """,
    "report": """
        json out
    """,
    "emit": """
        dtype engine engine-flags engine-version form hosts max-model-len max-num-seqs out
        port quantization served-model-name speculation target tensor-parallel-size
    """,
    "plan": """
        draft draft-quantization draft-sample-method draft-tensor-parallel-size
        enforce-eager gpu json k kv-cache-memory-bytes kv-dtype max-model-len
        max-num-batched-tokens max-num-seqs memory suggest target target-quantization
        utilization
    """,
    "distill": """
        answer-tokens batch-tokens budget data decay device draft-vocab dtype
        evaluate-prompts evaluate-tokens from hard heads held-out-prompts hidden
        intermediate json k kind kv-heads layers learning-rate max-answer-tokens out prompts
        room seed shard-texts stage steps storage taps target threads top-logits unroll work
    """,
    "export": """
        json out storage
    """,
}


@pytest.mark.parametrize("name", COMMANDS)
def test_no_flag_was_lost(name: str) -> None:
    flags = {
        each for action in find_command(name).parser()._actions for each in action.option_strings
    }
    assert {f"--{each}" for each in FLAGS[name].split()} <= flags


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_is_there_under_its_name(name: str) -> None:
    command = find_command(name)
    assert command.name == name
    keys = [key for option in command.options for key in option.keys]
    assert len(keys) == len(set(keys))
    for line in HELP[name]["examples"].splitlines():
        for flag in (word for word in line.split() if word.startswith("--")):
            known = [f"--{key.replace('_', '-')}" for key in keys]
            assert flag in known or not line.startswith(f"outdraft {name}"), flag


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["tunee"], "unknown command 'tunee' (did you mean 'tune'?); valid: generate, serve"),
        (
            ["bench", "http://x", "--temprature", "1"],
            "--temprature 1 (did you mean --temperature?)",
        ),
        (
            ["tune", "--temprature", "0", "--bugdet", "3m"],
            "--temprature 0 --bugdet 3m (did you mean --temperature, --budget?)",
        ),
        (["generate", "hi", "--max_tokens", "4"], "(did you mean --max-tokens?)"),
        (["generate", "hi", "-k", "4"], "(did you mean --k?)"),
        (["plan", "smollm2-135m"], "(did you mean --target smollm2-135m?)"),
        (["plan", "--tp", "2"], "(did you mean --gpu?)"),
        (["generate", "hi", "--model", "org/x"], "--model org/x (did you mean --target?)"),
        (["bench", "http://x", "--model", "m", "--num-prompts", "9"], "(did you mean --requests?)"),
        (["compare", "a", "b", "--duration", "30s"], "arguments: --duration 30s; see"),
        (["bench", "--base-url", "http://x"], "(did you mean URL without a flag?)"),
        (["generate", "--prompt", "hi"], "(did you mean PROMPT without a flag?)"),
        (["serve", "org/x"], "org/x (did you mean --target org/x?)"),
        (["gen", "hi"], "unknown command 'gen' (did you mean 'generate'?)"),
        (["--versoin"], "--versoin (did you mean --version?)"),
        (["bench"], "no URL: give the address of a server, or --quick for our own engine"),
        (["compare"], "arguments are required: BASELINE, CANDIDATE; see `outdraft compare --help`"),
        (["--verbose", "bench"], "unrecognized arguments: --verbose; see `outdraft --help`"),
        (["serve", "--port", "70000"], "--port must be between 0 and 65535, got 70000"),
        (["emit", "--speculation", "x"], "--engine is missing; give --engine ENGINE: "),
    ],
)
def test_mistakes_are_one_line(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    caught = capsys.readouterr()
    assert caught.out == ""
    assert caught.err.startswith("outdraft: ")
    assert caught.err.count("\n") == 1
    assert said in caught.err


def test_a_name_of_another_tool_leads_to_an_option_that_there_is() -> None:
    ours = {key.replace("_", "-") for name in COMMANDS for option in find_command(name).options
            for key in option.keys}  # fmt: skip
    assert set(_OTHER_NAMES.values()) <= ours


def test_without_a_command_it_shows_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "usage: outdraft COMMAND [options]" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "package"),
    [("generate hi", "torch"), ("serve --port 0", "uvicorn"), ("distill --out x", "torch"),
     ("export x --out y", "torch")],
)  # fmt: skip
def test_a_missing_package_is_one_line(words: str, package: str) -> None:
    code = (
        f"import sys; sys.modules[{package!r}] = None; "
        f"from outdraft.cli.main import main; sys.exit(main({words.split()!r}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1, done.stderr
    assert f"needs {package}" in done.stderr
    assert "pip install 'outdraft[server]'" in done.stderr
