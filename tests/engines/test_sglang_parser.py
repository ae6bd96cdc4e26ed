"""Every configuration emitted for SGLang is accepted by SGLang's own parser."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from outdraft.backends.engine_python import python_of
from outdraft.backends.sglang.installation import TABLE, detect
from outdraft.emit import FORMS, engine_config, write_form
from outdraft.errors import OptionError
from tests.backends import fake_sglang
from tests.emit.reading import argv_of, other_methods, servings, speculations
from tests.engines.places import sglang

pytestmark = pytest.mark.engines


def verdicts(commands: list[tuple[list[str], str | None]]) -> list[list[Any]]:
    done = subprocess.run(
        [str(python_of(sglang())), str(Path(__file__).with_name("sglang_parses.py"))],
        input=json.dumps(commands), capture_output=True, text=True, timeout=600, cwd="/",
    )  # fmt: skip
    [line] = [each for each in done.stdout.splitlines() if each.startswith("ANSWER ")] or [
        pytest.fail(done.stderr[-2000:])
    ]
    answers: list[list[Any]] = json.loads(line.removeprefix("ANSWER "))
    return answers


def test_every_form_of_every_speculation_is_accepted() -> None:
    made: list[tuple[list[str], str | None]] = []
    wanted: list[list[int] | None] = []
    for serving, hosts in servings("org/target"):
        for speculation in (*speculations("org/draft", "org/head"), *other_methods("org/heads")):
            try:
                config = engine_config(
                    "sglang", speculation, serving, version=TABLE.newest, hosts=hosts
                )
            except OptionError:
                continue  # SGLang has no such thing
            file = next(iter(config.files.values()), None)
            by_load = [speculation.k_at(size) for size in range(1, 65)]
            for form in FORMS:
                words = [w.replace("${RANK}", "1").replace("${HOSTNAME##*-}", "1")
                         for w in argv_of(write_form(config, form), form)]  # fmt: skip
                made.append((words, file))
                wanted.append(by_load if file else None)
    assert len(made) > 80
    assert [want for want in wanted if want], "no schedule among them"
    for (argv, _), want, (complaint, lengths) in zip(made, wanted, verdicts(made), strict=True):
        assert complaint is None, argv
        assert lengths == want, argv


def test_what_is_wrong_would_be_seen() -> None:
    start = ["python3", "-m", "sglang.launch_server", "--model-path", "x"]
    [[unknown, _], [no_number, _]] = verdicts(
        [([*start, "--speculative-no-such", "1"], None), ([*start, "--tp-size", "many"], None)]
    )
    assert "unrecognized" in unknown
    assert "invalid" in no_number


def test_the_table_has_what_the_installation_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTDRAFT_SGLANG", str(sglang()))
    found = detect()
    assert found.version == TABLE.newest
    assert TABLE.installation().options <= found.options


def test_the_stand_in_has_no_flag_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTDRAFT_SGLANG", str(sglang()))
    flags = {flag for action in fake_sglang.parser()._actions for flag in action.option_strings}
    assert TABLE.newest == fake_sglang.VERSION
    assert flags - {"-h", "--help"} <= detect().options
