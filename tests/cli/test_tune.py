"""`outdraft tune`: a real search on a tiny model, killed and gone on with; bad input."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from outdraft.cli.main import find_command, main
from outdraft.testing.tiny_models import tiny_model
from outdraft.tune.journal import Failure, Journal
from outdraft.tune.results import results_from_json
from outdraft.tune.run import plan_run
from outdraft.tune.settings import RunSettings

OUTDRAFT = (sys.executable, "-m", "outdraft")


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_model(tmp_path_factory.mktemp("tiny"), "llama"))


def tune(target: str, out: Path, *flags: str) -> list[str]:
    return [
        *OUTDRAFT, "tune", "--target", target, "--methods", "ngram", "--k", "2,4",
        "--concurrency", "2", "--category", "creative", "--max-tokens", "8", "--budget", "60s",
        "--threads", "1",
        "--out", str(out), *flags,
    ]  # fmt: skip


@pytest.mark.slow
def test_killed_and_gone_on_with(target: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    journal = out / "journal.jsonl"
    with subprocess.Popen(tune(target, out), stderr=subprocess.DEVNULL) as process:
        until = time.monotonic() + 90
        while not journal.exists() or journal.read_bytes().count(b"\n") < 3:
            assert time.monotonic() < until
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    before = journal.read_bytes()
    assert [each.name for each in out.iterdir() if each.suffix == ".json"] == []
    done = subprocess.run(
        tune(target, out), capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stderr
    assert f"going on with the run in {out}" in done.stderr
    whole = before[: before.rfind(b"\n") + 1]
    assert journal.read_bytes().startswith(whole), "nothing is measured twice"
    last = done.stdout.splitlines()[-1]
    assert last.startswith("best: ngram k=")
    assert "over off" in last
    results = results_from_json(json.loads((out / "results.json").read_text()))
    assert results.num_requests > 0
    assert {arm.name for arm in results.loads[0].arms} == {"off", "ngram k=2", "ngram k=4"}
    assert "<html" in (out / "report.html").read_text()
    assert "[serve]" in (out / "outdraft.toml").read_text()


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*words: str) -> tuple[int, str, str]:
        code = main(["tune", *words])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--backend", "vlm"), "unknown engine 'vlm' (did you mean 'vllm'?)"),
        (("--methods", "ngramm"), "did you mean 'ngram'"),
        (("--k", "0..3"), "--k '0..3': draft lengths are 1 to 64"),
        (("--k", "many"), "write e.g. 2..8"),
        (("--k", "2,8..4"), "--k '2,8..4': draft lengths are 1 to 64; write e.g. 2..8"),
        (("--k", "1..99999999999"), "draft lengths are 1 to 64"),
        (("--budget", "soon"), "--budget 'soon' is not a duration; write e.g. 90s"),
        (("--margin", "5"), "--margin must be between 0 and 0.99, got 5"),
        (("--concurrency", "1,1"), "names a load twice"),
        (("--concurrency", "0"), "no list of numbers above 0"),
        (("--objective", "speed"), "unknown objective 'speed'"),
        (("--objective", "goodput"), "--objective goodput needs --slo"),
        (("--slo", "ttft"), "--slo 'ttft'"),
        (("--draft-quantization", "int3"), "unknown draft quantization 'int3'"),
        (("--rule", "always"), "unknown verification rule 'always'"),
        (("--acceptance", "always"), "unknown verification rule 'always'"),
        (("--temperature", "0:1%"), "the shares sum to 1 %"),
        (("--gpu", "h1000"), "unknown GPU 'h1000'"),
        (("--draft", "nowhere/at/all"), "nowhere/at/all"),
        (("--methods", "draft_model", "--target", "./none.gguf"), "none.gguf"),
        (("--config", "none.toml"), "cannot read none.toml"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(
    told: Any, tmp_path: Path, words: tuple[str, ...], named: str
) -> None:
    out = tmp_path / "out"
    code, said, complaint = told("--out", str(out), *words)
    assert (code, said) == (2, "")
    assert complaint.startswith("outdraft: ")
    assert complaint.count("\n") == 1, complaint
    assert named in complaint
    assert not out.exists()


def test_an_empty_prompts_file(told: Any, tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    code, _, complaint = told("--out", str(tmp_path / "out"), "--prompts", str(empty))
    assert code == 2
    assert "has no entries" in complaint


def begin(*flags: str) -> Path:
    """A journal of these flags, as `tune` would write it; only a block and a failure long."""
    args = find_command("tune").parse(flags)
    path = Path(args.out) / "journal.jsonl"
    with Journal(path, plan_run(RunSettings.from_options(args)).header) as journal:
        journal.add(Failure("concurrency 1", "ngram k=2", "it died", 1.0))
    return path


def refused(told: Any, path: Path, *flags: str) -> str:
    """The line that refuses to go on with the journal, which stays as it is."""
    before = path.read_bytes()
    code, said, complaint = told(*flags)
    assert (code, said) == (2, "")
    assert complaint.count("\n") == 1, complaint
    assert path.read_bytes() == before
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    return str(complaint)


def test_prompts_that_have_changed_are_another_run(told: Any, target: str, tmp_path: Path) -> None:
    prompts, out = tmp_path / "prompts.jsonl", tmp_path / "out"
    flags = ("--target", target, "--methods", "ngram", "--prompts", str(prompts), "--out", str(out))
    prompts.write_text('{"prompt": "Tell me of ferries."}\n')
    path = begin(*flags)
    assert begin(*flags, "--objective", "tpot", "--margin", "0.05", "--budget", "1m") == path
    prompts.write_text('{"prompt": "Tell me of harbours."}\n')
    complaint = refused(told, path, *flags)
    assert f"{out} holds a run with another digest of the prompts" in complaint


def test_another_file_of_the_same_name_is_another_run(
    told: Any, target: str, tmp_path: Path
) -> None:
    draft, out = tmp_path / "draft", tmp_path / "out"
    tiny_model(draft, "llama")
    flags = ("--target", target, "--draft", str(draft), "--methods", "draft_model", "--out",
             str(out))  # fmt: skip
    path = begin(*flags)
    assert begin(*flags) == path, "the same files"
    tiny_model(draft, "llama", seed=1)
    complaint = refused(told, path, *flags)
    assert f"{out} holds a run with another digest of the files of draft {draft} (" in complaint
    assert "give another --out" in complaint


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"version of outdraft": "0.0.9"}, 'another version of outdraft ("0.0.9", now "'),
        ({"version of the engine": "outdraft 0.1.0, torch 1.0"}, "another version of the engine ("),
        ({"CPU": "Z80"}, 'another CPU ("Z80", now "'),
        ({"number of cores": 1000}, "another number of cores (1000, now "),
        ({"list of GPUs": ["H200"]}, 'another list of GPUs (["H200"], now '),
        ({"memory in GiB": 0}, "another memory in GiB (0, now "),
    ],
)
def test_another_version_or_machine_is_another_run(
    told: Any, target: str, tmp_path: Path, changed: dict[str, Any], named: str
) -> None:
    flags = ("--target", target, "--methods", "ngram", "--out", str(tmp_path / "out"))
    path = begin(*flags)
    header, rest = path.read_text().split("\n", 1)
    assert changed.keys() <= json.loads(header).keys()
    path.write_text(json.dumps(json.loads(header) | changed) + "\n" + rest)
    assert named in refused(told, path, *flags)


def test_a_folder_of_another_run_is_refused(told: Any, target: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "journal.jsonl").write_text('{"schema":1,"target":"another"}\n')
    complaint = refused(
        told, out / "journal.jsonl", "--out", str(out), "--methods", "ngram", "--target", target
    )
    assert f"{out} holds a run with another target" in complaint


# The header that the version before wrote for these flags.
HEADER = {
    "schema": 1, "draft": None, "backend": "embedded", "methods": "ngram",
    "k": "2,4", "draft_quantization": "none,int8", "acceptance": "coupled,typical",
    "prompts": "built-in", "category": ["creative"], "temperature": "0", "concurrency": "1,4",
    "rate": None, "max_tokens": 64, "block": None, "seed": 0, "max_model_len": None,
    "max_num_seqs": None, "tensor_parallel_size": 1, "threads": 1, "dtype": None, "gpu": None,
    "engine_flags": None,
}  # fmt: skip
FLAGS = ("--methods", "ngram", "--k", "2,4", "--category", "creative", "--threads", "1",
         "--rule", "coupled,typical")  # fmt: skip


def test_a_journal_of_yesterday_does_not_say_what_it_measured(
    told: Any, target: str, tmp_path: Path
) -> None:
    flags = ("--target", target, *FLAGS, "--out", str(tmp_path))
    plan = plan_run(RunSettings.from_options(find_command("tune").parse(flags)))
    digest = plan.header["digest of the prompts"]
    path = tmp_path / "journal.jsonl"
    path.write_text(
        json.dumps({**HEADER, "target": target, "digest of the prompts": digest}) + "\n"
    )
    complaint = refused(told, path, *flags)
    assert "holds a run that does not say its " in complaint
    assert "digest of the target's files, " in complaint
    assert "give another --out" in complaint


def test_what_only_judges_is_no_part_of_the_header(target: str) -> None:
    plan = plan_run(
        RunSettings.from_options(find_command("tune").parse(("--target", target, *FLAGS)))
    )
    assert plan.settings.options.keys() - plan.header.keys() == {
        "budget", "margin", "objective", "slo", "keep_engines", "start_limit"
    }  # fmt: skip


@pytest.mark.parametrize("begun", [("--engine", "outdraft"), ("--backend", "outdraft"), ()])
@pytest.mark.parametrize("again", [("--backend", "embedded"), ("--acceptance", "coupled"), ()])
def test_two_ways_to_say_the_same(
    target: str, tmp_path: Path, begun: tuple[str, ...], again: tuple[str, ...]
) -> None:
    flags = ("--target", target, "--methods", "ngram", "--out", str(tmp_path))
    assert begin(*flags, *begun) == begin(*flags, *again)


@pytest.mark.parametrize("name", ["embedded", "outdraft"])
def test_both_names_of_our_own_engine(name: str) -> None:
    settings = RunSettings.from_options(find_command("tune").parse(("--backend", name)))
    assert settings.engine == "outdraft"
    assert settings.options["backend"] == "embedded", "as results.json has always had it"
