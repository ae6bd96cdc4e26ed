"""The stages of a distillation, each by itself."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from outdraft.cli.main import main
from outdraft.distill import pipeline
from outdraft.distill.data.prompts import split_prompts
from outdraft.workload.files import read_prompts
from outdraft.workload.prompt import Prompt
from outdraft.workload.training import (
    add_training_digests,
    listed_digests,
    write_training_digests,
)

SMALL = ("--steps", "1", "--batch-tokens", "600", "--hidden", "32", "--layers", "1", "--heads", "2",
         "--kv-heads", "1", "--intermediate", "48")  # fmt: skip


def test_a_draft_lists_all_that_it_has_learned_from(
    target_path: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not the prompts of the command line: here there are none but the built-in ones."""
    texts = tmp_path / "texts"
    for folder in (texts / "1", texts / "2", tmp_path / "old"):
        shutil.copytree(data, folder)
    made = listed_digests(data)
    assert made
    add_training_digests(texts / "2", ["second"])
    (tmp_path / "old" / "training_prompts.txt").unlink()

    def train(out: str, folder: Path, *more: str) -> frozenset[str] | None:
        places = ["--target", str(target_path), "--out", str(tmp_path / out), "--data", str(folder)]
        assert main(["distill", "--stage", "train", *places, *SMALL, *more]) == 0
        return listed_digests(tmp_path / out)

    assert train("first", texts) == {*made, "second"}
    start = ("--from", str(tmp_path / "first"))
    assert train("later", texts / "1", *start) == {*made, "second"}
    add_training_digests(tmp_path / "later", ["earlier"])
    assert train("later", texts / "1") == {*made, "second", "earlier"}
    assert "does not list its prompts" not in capsys.readouterr().err
    built_in = {prompt.digest for prompt in split_prompts([])[0]}
    assert train("third", tmp_path / "old") == built_in, "as the version that made the texts did"
    note = f"note: {tmp_path / 'old'} does not list its prompts; those given now are listed for it"
    assert note in capsys.readouterr().err.splitlines()


def test_a_draft_is_not_evaluated_on_what_it_was_trained_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Trained with all prompts of a file, a third of which is held out when it is given now."""
    file, draft = tmp_path / "own.jsonl", tmp_path / "draft"
    file.write_text("\n".join(json.dumps({"prompt": f"question {n}"}) for n in range(9)))
    own = read_prompts(file)
    _, held_out = split_prompts(own)
    seen = {prompt.digest for prompt in own}
    assert sum(prompt.digest in seen for prompt in held_out) == 3
    write_training_digests(draft, seen)
    (draft / "config.json").write_text("{}")
    asked: list[Prompt] = []

    def measure(
        settings: Any, draft: Path, prompts: Sequence[Prompt], *_: Any, **times: Any
    ) -> dict[str, Any]:
        asked.extend(prompts)
        return {}

    monkeypatch.setattr(pipeline, "measure_acceptance", measure)
    flags = ["--stage", "evaluate", "--prompts", str(file), "--out", str(draft)]
    assert main(["distill", *flags]) == 0
    assert len(asked) == len(held_out) - 3
    assert seen.isdisjoint(prompt.digest for prompt in asked)
    assert "prompts were used to train" in capsys.readouterr().err
