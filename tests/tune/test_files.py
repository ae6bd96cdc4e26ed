from __future__ import annotations

import argparse
import json
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from outdraft.catalog.entries import SHIPPED_DRAFTS
from outdraft.cli.main import find_command
from outdraft.cli.speculative_config import speculation_in_any_form
from outdraft.distill.saving.export import export_draft
from outdraft.emit.settings import read_file
from outdraft.engine.native.library import library
from outdraft.errors import ModelError
from outdraft.modelspec import read_modelspec
from outdraft.speculation import OFF, Speculation
from outdraft.tune.answer import answer_of, recommended
from outdraft.tune.files import write_results
from outdraft.tune.results import LoadResult, Results
from outdraft.tune.wording import headline
from tests.report.sample_results import sample_results

CONFIGS = ("vllm.json", "vllm.sh", "sglang.sh", "llama-server.sh")
DRAFT = "smollm2-135m-draft"


@pytest.fixture(autouse=True)
def _no_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest known versions, not what happens to be installed."""
    monkeypatch.setenv("PATH", "/nowhere")
    for name in ("OUTDRAFT_VLLM", "OUTDRAFT_SGLANG", "OUTDRAFT_LLAMA_SERVER"):
        monkeypatch.delenv(name, raising=False)


def decided(decision: str, target: str = "/models/target.gguf", best: str | None = None) -> Results:
    """With a target that no one fetches; the best arm is the sample's or the one named."""
    results = sample_results()

    def load(each: LoadResult) -> LoadResult:
        assert each.verdict is not None
        verdict = replace(each.verdict, decision=decision)
        return replace(each, verdict=verdict, best=best or each.best)

    return replace(results, target=target, loads=tuple(load(each) for each in results.loads))


def of_hub(decision: str, best: str | None = None) -> Results:
    return decided(decision, "org/target", best)


@pytest.mark.parametrize("decision", ["DON'T SHIP", "INCONCLUSIVE"])
def test_what_is_not_to_be_shipped_is_in_no_file(tmp_path: Path, decision: str) -> None:
    results = of_hub(decision)
    assert recommended(results) == OFF
    written, _ = write_results(results, tmp_path, _refused)
    assert written[0] == "results.json"
    for name in ("vllm.sh", "vllm.json", "outdraft.toml"):
        text = (tmp_path / name).read_text()
        assert decision in text
        assert "num_speculative_tokens" not in text
        assert "speculative_config" not in text


def test_a_category_with_a_line_break_is_no_line_of_a_file(tmp_path: Path) -> None:
    evil = "a\ntouch evil\u2028touch evil\rtouch evil"
    results = of_hub("INCONCLUSIVE")
    loads = []
    for each in results.loads:
        assert each.verdict is not None
        verdict = replace(each.verdict, reasons=(evil, evil))
        loads.append(replace(each, verdict=verdict))
    write_results(replace(results, target="org/t 😀", loads=tuple(loads)), tmp_path, _refused)
    for name in ("vllm.sh", "outdraft.toml"):
        text = (tmp_path / name).read_text()
        assert "touch evil" in text
        assert not [line for line in text.splitlines() if line.startswith("touch")], name
    served = tomllib.loads((tmp_path / "outdraft.toml").read_text())["serve"]
    assert served["target"] == "org/t 😀"


def test_every_engine_gets_the_nearest_it_can_run(tmp_path: Path) -> None:
    made: list[tuple[str, Path]] = []
    written, left_out = write_results(
        of_hub("SHIP"), tmp_path, lambda name, folder: made.append((name, folder))
    )
    assert list(left_out) == ["llama-server.sh"], "the target is no .gguf file"
    assert made == [(DRAFT, tmp_path / "draft")], "once for both"
    assert written == ["results.json", *CONFIGS[:3], "draft/", "outdraft.toml"]
    vllm = json.loads((tmp_path / "vllm.json").read_text())
    config = vllm["config"]["speculative-config"]
    assert config["model"] == str(tmp_path / "draft")
    assert config["num_speculative_tokens_per_batch_size"][0] == [1, 2, 5]
    sglang = (tmp_path / "sglang.sh").read_text()
    assert "--speculative-num-steps 4" in sglang, "the best arm's own length"
    for words in ("SHIP", "length by load is left out", "int8 is left out", "holds " + DRAFT):
        assert words in sglang
    assert "concurrency 4: SHIP" in (tmp_path / "outdraft.toml").read_text()


def test_files_for_an_engine_that_was_not_measured_say_so_on_top(tmp_path: Path) -> None:
    carried = "the settings carry over, the gain may not"
    results = of_hub("SHIP", "ngram k=5")
    write_results(results, tmp_path)
    for name, title in (("vllm.sh", "vLLM"), ("sglang.sh", "SGLang")):
        top = [line for line in (tmp_path / name).read_text().splitlines() if line][:3]
        assert any(f"note: measured on outdraft, not on {title}: {carried}" in each for each in top)
    assert _notes(tmp_path / "vllm.json")[0] == f"measured on outdraft, not on vLLM: {carried}"
    assert "not on" not in (tmp_path / "outdraft.toml").read_text()
    write_results(replace(results, backend="vllm"), tmp_path)
    assert "not on vLLM" not in (tmp_path / "vllm.sh").read_text()
    own = (tmp_path / "outdraft.toml").read_text()
    assert own.startswith(f"# measured on vLLM, not on outdraft: {carried}")
    write_results(of_hub("DON'T SHIP"), tmp_path)
    unknown = "measured on outdraft, not on vLLM: whether speculation pays there is not known"
    assert _notes(tmp_path / "vllm.json")[0] == unknown


def test_every_file_begins_with_the_answer(tmp_path: Path) -> None:
    results = of_hub("SHIP", "ngram k=5")
    said = headline(answer_of(results))
    write_results(results, tmp_path)
    for name in ("vllm.sh", "sglang.sh", "outdraft.toml"):
        assert said in (tmp_path / name).read_text()
    assert said in _notes(tmp_path / "vllm.json")
    assert json.loads((tmp_path / "results.json").read_text())["answer"]["headline"] == said


def test_the_folder_is_the_draft(tmp_path: Path) -> None:
    write_results(of_hub("SHIP"), tmp_path, export_draft)
    config = json.loads((tmp_path / "vllm.json").read_text())["config"]["speculative-config"]
    folder, file = Path(config["model"]), SHIPPED_DRAFTS[DRAFT].path
    assert read_modelspec(folder).num_parameters == read_modelspec(file).num_parameters


def test_llamacpp_takes_the_file_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "vllm.sh").write_text("of an earlier run")
    written, left_out = write_results(decided("SHIP"), tmp_path, lambda name, folder: None)
    assert "llama-server.sh" in written
    text = (tmp_path / "llama-server.sh").read_text()
    assert "--spec-draft-n-max 4" in text
    assert f"{DRAFT}/draft.gguf" in text
    for words in ("length by load is left out", "a Q8_0 file"):
        assert words in text
    assert "GGUF" in left_out["vllm.sh"]
    assert not (tmp_path / "vllm.sh").exists(), "nothing of an earlier run stays"


def test_a_schedule_that_is_off_at_the_load_of_the_verdict_is_not_written(tmp_path: Path) -> None:
    """No search makes one: the verdict says that it pays there."""
    results = replace(decided("SHIP"), schedule=((1, 2, 5), (3, 256, 0)))
    write_results(results, tmp_path)
    assert "--spec-draft-n-max 4" in (tmp_path / "llama-server.sh").read_text()
    assert "schedule" not in (tmp_path / "outdraft.toml").read_text().splitlines()[-1]


def test_a_rate_has_no_band_of_its_own(tmp_path: Path) -> None:
    results = decided("SHIP")
    loads = tuple(replace(each, concurrency=None, rate=2.0) for each in results.loads)
    write_results(replace(results, loads=loads), tmp_path)
    assert "--spec-draft-n-max 4" in (tmp_path / "llama-server.sh").read_text()


def test_without_torch_the_command_is_a_note(tmp_path: Path) -> None:
    written, _ = write_results(of_hub("SHIP"), tmp_path)
    assert "draft/" not in written
    command = f"outdraft export {DRAFT} --out {tmp_path / 'draft'}"
    assert any(command in note for note in _notes(tmp_path / "vllm.json"))


def test_a_draft_that_cannot_be_exported_is_a_reason(tmp_path: Path) -> None:
    written, left_out = write_results(of_hub("SHIP"), tmp_path, _refused)
    assert set(CONFIGS[:3]) <= set(left_out)
    assert "no words" in left_out["vllm.sh"]
    assert written == ["results.json", "outdraft.toml"]


@pytest.mark.parametrize(
    ("best", "lacking"),
    [
        (
            "suffix k=8",
            {"sglang.sh": "SGLang has no method 'suffix'", "llama-server.sh": "llama.cpp"},
        ),
        ("eagle smollm2-135m-eagle k=5", {"sglang.sh": "norm_before_residual"}),
    ],
)
def test_a_method_that_an_engine_lacks_is_a_reason(
    best: str, lacking: dict[str, str], tmp_path: Path
) -> None:
    export = export_draft if best.startswith("eagle") else _refused  # the head is in blocks
    written, left_out = write_results(of_hub("SHIP", best), tmp_path, export)
    assert {"vllm.json", "vllm.sh"} <= set(written)
    for name, words in lacking.items():
        assert words in left_out[name]


def test_nothing_is_exported_for_what_needs_no_draft(tmp_path: Path) -> None:
    written, left_out = write_results(of_hub("SHIP", "ngram k=5"), tmp_path, _refused)
    assert set(CONFIGS[:3]) <= set(written)
    assert list(left_out) == ["llama-server.sh"]


def _refused(name: str, folder: Path) -> None:
    raise ModelError("config.json has no words for this")


def _notes(file: Path) -> list[str]:
    notes: list[str] = json.loads(file.read_text())["notes"]
    return notes


def test_files_have_the_flags_that_were_measured(tmp_path: Path) -> None:
    results = of_hub("SHIP", "ngram k=5")
    flags = {"engine_flags": "--gpu-memory-utilization 0.8", "max_num_seqs": 300}
    results = replace(results, backend="vllm", settings={**results.settings, **flags})
    write_results(results, tmp_path, _refused)
    text = (tmp_path / "vllm.sh").read_text()
    assert "--gpu-memory-utilization 0.8" in text
    assert "--max-num-seqs 300" in text
    other = (tmp_path / "sglang.sh").read_text()
    assert "--gpu-memory-utilization" not in other, "another engine does not know this flag"
    assert "--max-running-requests 300" in other
    own = tomllib.loads((tmp_path / "outdraft.toml").read_text())
    assert own["serve"]["max_num_seqs"] == 300
    assert own["emit"] == {"engine": "vllm", "engine_flags": "--gpu-memory-utilization 0.8"}
    assert "gpu" not in str(served_with(tmp_path)), "our server knows nothing of it"


def served_with(folder: Path) -> argparse.Namespace:
    """What `outdraft serve` makes of the file."""
    return find_command("serve").parse(["--config", str(folder / "outdraft.toml")])


@pytest.mark.parametrize("backend", ["embedded", "vllm"])
@pytest.mark.parametrize("decision", ["DON'T SHIP", "INCONCLUSIVE", "SHIP"])
def test_our_server_and_emit_do_what_the_verdict_says(
    tmp_path: Path, backend: str, decision: str
) -> None:
    results = replace(of_hub(decision, "ngram k=5"), backend=backend)
    write_results(results, tmp_path, _refused)
    told: list[str] = []
    speculation = speculation_in_any_form(served_with(tmp_path), told.append)
    assert speculation == recommended(results)
    assert speculation.is_off == (decision != "SHIP")
    assert read_file(str(tmp_path / "outdraft.toml")).speculation == speculation
    assert not told


def test_a_file_of_an_earlier_version_is_off_too(tmp_path: Path) -> None:
    file = tmp_path / "outdraft.toml"
    said = "# Speculation stays off: nothing clearly pays for all of this traffic.\n"
    file.write_text(f'# x\n[serve]\ntarget = "org/x"\n{said}')
    told: list[str] = []
    assert speculation_in_any_form(served_with(tmp_path), told.append).is_off
    assert 'write method = "off"' in told[0]
    asked = ["--config", str(file), "--method", "ngram"]
    args = find_command("serve").parse(asked)
    assert speculation_in_any_form(args, told.append) == Speculation("ngram")
    file.write_text('[serve]\ntarget = "org/x"\n')
    if library() is not None:
        assert speculation_in_any_form(served_with(tmp_path), told.append).is_auto, "others' own"


def test_our_server_is_started_as_it_was_measured(tmp_path: Path) -> None:
    given = {
        "dtype": "bfloat16",
        "threads": 3,
        "max_model_len": 2048,
        "max_num_seqs": 64,
        "tensor_parallel_size": 1,
        "engine_flags": "--max-num-batched-tokens=256 --no-enable-prefix-caching",
    }
    results = of_hub("SHIP", "ngram k=5")
    write_results(replace(results, settings={**results.settings, **given}), tmp_path, _refused)
    args = served_with(tmp_path)
    assert args.target == "org/target"
    assert (args.dtype, args.threads) == ("bfloat16", 3)
    assert (args.max_model_len, args.max_num_seqs) == (2048, 64)
    assert (args.max_num_batched_tokens, args.no_enable_prefix_caching) == (256, True)
    assert "[emit]" not in (tmp_path / "outdraft.toml").read_text()
    write_results(replace(results, settings={**results.settings, "dtype": None}), tmp_path)
    assert "dtype" not in (tmp_path / "outdraft.toml").read_text()
