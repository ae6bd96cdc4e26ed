"""`outdraft distill` as a user runs it, on a tiny target."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from outdraft.cli.main import main
from outdraft.engine import assemble
from outdraft.testing.tiny_models import tiny_model

SMALL = (  # noqa: SIM905
    "--threads 1 --room 500 --answer-tokens 16 --evaluate-tokens 12 --shard-texts 12 "
    "--max-answer-tokens 40 --steps 2 --batch-tokens 2000 --held-out-prompts 1 --heads 2 "
    "--kv-heads 1 --evaluate-prompts 1 --budget 30m"
).split()
MODEL = ["--hidden", "32", "--layers", "1", "--intermediate", "32"]
HEAD = ["--kind", "head", "--unroll", "2", "--draft-vocab", "100"]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("distill")
    return str(tiny_model(folder / "target", "smollm2", layers=3, context=2048))


@pytest.fixture(autouse=True)
def small_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """To clear the usual GB takes half a second."""
    monkeypatch.setattr(assemble, "_CPU_KV_CACHE_BYTES", 16 << 20)


@pytest.mark.slow
def test_both_kinds_from_the_same_texts(
    target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = ["--target", target, "--data", str(tmp_path / "data"), *SMALL]
    model, head = tmp_path / "model", tmp_path / "head"
    assert main(["distill", *data, *MODEL, "--out", str(model), "--json"]) == 0
    printed = capsys.readouterr().out
    report = json.loads(printed)
    assert "NaN" not in printed
    assert report["training"]["step"] == 2
    assert report["measured"]["0"]["all"]["rounds"] > 0
    assert {"config.json", "model.safetensors", "tokenizer.json", "README.md", "distill.json",
            "generation_config.json", "draft-F16.gguf", "draft-Q8_0.gguf"} <= {
        path.name for path in model.iterdir()}  # fmt: skip
    card = (model / "README.md").read_text()
    assert "held out" in card
    assert "| 0 | all |" in card
    assert len((model / "training_prompts.txt").read_text().split()) == 184
    assert main(["distill", *data, *HEAD, "--out", str(head)]) == 0
    shown = capsys.readouterr()
    assert "acceptance length" in shown.out
    assert "held-out prompts: T=0" in shown.err
    assert {path.name for path in head.iterdir()} == {
        "config.json", "model.safetensors", "README.md", "distill.json",
            "training_prompts.txt", "work"}  # fmt: skip


def test_a_longer_training_keeps_what_was_measured(
    target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["distill", "--target", target, "--out", str(tmp_path), *SMALL, *MODEL, "--json"]
    assert main([*command, "--stage", "data"]) == 0
    for steps in ("2", "4"):
        capsys.readouterr()
        assert main([*command, "--stage", "train", "--steps", steps]) == 0
    measured = [entry["step"] for entry in json.loads(capsys.readouterr().out)["history"]]
    assert measured[0] == 0
    assert {2, 4} <= set(measured)
    assert measured == sorted(set(measured))


@pytest.mark.slow
def test_after_kill_9_it_goes_on(target: str, tmp_path: Path) -> None:
    out = tmp_path / "model"
    command = ["distill", "--target", target, "--out", str(out), *SMALL, *MODEL]
    command[command.index("--steps") + 1] = "100000"
    process = subprocess.Popen(
        [sys.executable, "-m", "outdraft", *command],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    deadline = time.monotonic() + 120
    while not (out / "distill.json").exists() and time.monotonic() < deadline:
        assert process.poll() is None, process.stderr and process.stderr.read()
        time.sleep(0.1)
    process.kill()
    process.wait()
    assert process.stderr is not None
    process.stderr.close()
    shards = sorted(path.name for path in (out / "work" / "data").glob("shard-*"))
    command[command.index("100000")] = "3"
    assert main(command) == 0
    assert sorted(path.name for path in (out / "work" / "data").glob("shard-*")) == shards
    assert json.loads((out / "distill.json").read_text())["training"]["step"] >= 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--out", "x", "--kind", "heads"], "unknown kind 'heads' (did you mean 'head'?)"),
        (["--out", "x", "--stage", "tain"], "unknown stage 'tain' (did you mean 'train'?)"),
        ([], "no place for the draft; give --out DIR"),
        (["--out", "x", "--budget", "8x"], "--budget '8x' is not a duration; write e.g. 90s, 10m"),
        (["--out", "x", "--budget", "0s"], "--budget '0s' is not a duration; write e.g. 90s, 10m"),
        (["--out", "x", "--kind", "head", "--hidden", "64"], "--hidden is for --kind model"),
        (["--out", "x", "--kind", "head", "--taps", "2,x"], "--taps takes three layers"),
        (["--out", "x", "--stage", "evaluate"], "holds no draft yet; run the train stage first"),
        (["--out", "x", "--stage", "train"], "holds no texts yet; run the data stage first"),
        (["--out", "x", "--device", "cuda:9"], "is not there"),
        (["--out", "x", "--top-logits", "0"], "--top-logits must be at least 1, got 0"),
        (["--out", "x", "--learning-rate", "0"], "a learning rate lies between 0 and 1"),
    ],
)
def test_what_cannot_be_is_one_line(
    arguments: list[str],
    message: str,
    target: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["distill", "--target", target, *arguments]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert message in error
    assert list(tmp_path.iterdir()) == []


def test_a_bad_line_of_prompts_is_named_and_nothing_is_written(
    target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts = tmp_path / "p.jsonl"
    prompts.write_text('{"prompt": "a"}\n{"prompt": 3}\n')
    out = tmp_path / "out"
    assert main(["distill", "--target", target, "--out", str(out), "--prompts", str(prompts)]) == 2
    error = capsys.readouterr().err
    assert f"{prompts}, line 2" in error
    assert len(error.strip().splitlines()) == 1
    assert not out.exists()


def test_an_unsupported_architecture_is_one_line(
    target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "other"
    folder.mkdir()
    for file in Path(target).iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    config.update(model_type="mamba", architectures=["MambaForCausalLM"])
    (folder / "config.json").write_text(json.dumps(config))
    assert main(["distill", "--target", str(folder), "--out", str(tmp_path / "out")]) == 2
    assert "unsupported architecture" in capsys.readouterr().err.strip().splitlines()[-1]
    assert not (tmp_path / "out").exists()
