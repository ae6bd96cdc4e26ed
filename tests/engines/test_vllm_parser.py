"""Every configuration emitted for vLLM is accepted by vLLM itself."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from outdraft.backends.backend import Serving
from outdraft.backends.engine_python import python_of
from outdraft.backends.vllm.installation import TABLE, detect
from outdraft.emit import FORMS, engine_config, write_form
from outdraft.errors import OptionError
from outdraft.speculation import Speculation
from tests.emit.reading import argv_of, other_methods, servings, speculations
from tests.engines.heads import write_head, write_medusa, write_mtp_target
from tests.engines.places import smollm2_folder, vllm

pytestmark = pytest.mark.engines


def complaints(commands: list[list[str]]) -> list[str | None]:
    done = subprocess.run(
        [str(python_of(vllm())), str(Path(__file__).with_name("vllm_parses.py"))],
        input=json.dumps(commands),
        capture_output=True,
        text=True,
        timeout=900,
        env={"HF_HUB_OFFLINE": "1", "PATH": "/usr/bin:/bin", "HOME": str(Path.home())},
    )
    [line] = [each for each in done.stdout.splitlines() if each.startswith("ANSWER ")] or [
        pytest.fail(done.stderr[-2000:])
    ]
    answers: list[str | None] = json.loads(line.removeprefix("ANSWER "))
    return answers


def test_every_form_of_every_speculation_is_accepted(tmp_path: Path) -> None:
    target, draft = smollm2_folder(), smollm2_folder(6)
    head = write_head(tmp_path / "head", target)
    made: dict[str, list[str]] = {}  # what it is → its command
    for serving, hosts in servings(str(target)):
        for speculation in speculations(str(draft), str(head)):
            config = engine_config("vllm", speculation, serving, version=TABLE.newest, hosts=hosts)
            for form in FORMS:
                name = f"{form}, {hosts} hosts, {serving}: {speculation}"
                made[name] = argv_of(write_form(config, form), form)
    assert len(made) > 100
    once = {json.dumps(argv): argv for argv in made.values()}
    answers = dict(zip(once, complaints(list(once.values())), strict=True))
    refused = {n: answers[json.dumps(a)] for n, a in made.items() if answers[json.dumps(a)]}
    assert refused == {}


def test_methods_of_some_targets_are_accepted(tmp_path: Path) -> None:
    """Layers of the target's own, and Medusa heads: each with a target that has them."""
    targets = {"mtp": write_mtp_target(tmp_path / "target"), "medusa": smollm2_folder()}
    heads = write_medusa(tmp_path / "heads", smollm2_folder())
    made = []
    for speculation in other_methods(str(heads)):
        serving = Serving(str(targets[speculation.method]), max_num_seqs=64, max_model_len=2048)
        config = engine_config("vllm", speculation, serving, version=TABLE.newest)
        made += [argv_of(write_form(config, form), form) for form in FORMS]
    assert complaints(made) == [None] * len(made)


def test_the_json_form_has_a_file_for_vllms_config_flag(tmp_path: Path) -> None:
    speculation = Speculation("ngram", k=4)
    serving = Serving(str(smollm2_folder()), max_num_seqs=8)
    config = engine_config("vllm", speculation, serving, version=TABLE.newest)
    file = tmp_path / "vllm.yaml"  # JSON is YAML
    file.write_text(json.dumps(json.loads(write_form(config, "json"))["config"]))
    assert complaints([["vllm", "serve", "--config", str(file)]]) == [None]


def test_what_is_wrong_would_be_seen() -> None:
    serve = ["vllm", "serve", str(smollm2_folder())]
    wrong = [
        [*serve, "--speculative-model", "x"],
        [*serve, "--speculative-config", '{"method": "ngram", "no_such_key": 1}'],
        [*serve, "--max-num-seqs", "many"],
    ]
    assert all(complaints(wrong))


def test_a_command_out_of_an_article_is_accepted_after_translation() -> None:
    extra = ("--num-speculative-tokens", "3", "--ngram-prompt-lookup-max", "4",
             "--use-v2-block-manager", "--speculative-disable-by-batch-size", "8")  # fmt: skip
    serving = Serving(str(smollm2_folder()), extra=extra)
    config = engine_config("vllm", Speculation("ngram"), serving, version=TABLE.newest)
    assert complaints([list(config.argv)]) == [None]
    with pytest.raises(OptionError):
        engine_config("vllm", Speculation("ngram", k=7), serving, version=TABLE.newest)


def test_the_table_has_what_the_installation_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTDRAFT_VLLM", str(vllm()))
    found = detect()
    assert found.numbers == TABLE.installation().numbers
    assert TABLE.installation().options <= found.options
