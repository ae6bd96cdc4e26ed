"""A draft is not measured on the prompts it was trained on."""

from __future__ import annotations

from pathlib import Path

import pytest

from outdraft.catalog import drafts_for, hub
from outdraft.errors import CatalogError, OptionError
from outdraft.workload.prompt import Message, Prompt
from outdraft.workload.sets import built_in
from outdraft.workload.training import (
    add_training_digests,
    listed_digests,
    training_digests,
    unseen_prompts,
    write_training_digests,
)


def prompt(text: str) -> Prompt:
    return Prompt(text[:8], "chat", (Message("user", text),), 64)


PROMPTS = [prompt(f"question number {number}") for number in range(6)]


@pytest.fixture
def draft(tmp_path: Path) -> str:
    """A draft that was trained on two of the prompts."""
    write_training_digests(tmp_path, (each.digest for each in PROMPTS[:2]))
    return str(tmp_path)


def test_a_digest_is_of_the_words() -> None:
    assert prompt("How  are\nyou?").digest == prompt("how are you?").digest
    assert prompt("How are you").digest != prompt("how are you?").digest


def test_training_prompts_are_left_out_and_counted(draft: str) -> None:
    kept, notes = unseen_prompts(PROMPTS, [draft])
    assert kept == PROMPTS[2:]
    assert notes == [f"2 of 6 prompts were used to train {draft} and are left out"]


def test_nothing_is_said_where_nothing_was_seen(draft: str) -> None:
    assert unseen_prompts(PROMPTS[2:], [draft]) == (PROMPTS[2:], [])
    assert unseen_prompts(PROMPTS, []) == (PROMPTS, [])


def test_where_nothing_is_left(draft: str) -> None:
    with pytest.raises(OptionError, match=r"all 2 prompts were used to train .*--prompts"):
        unseen_prompts(PROMPTS[:2], [draft])


@pytest.mark.parametrize("name", ["somebody/a-draft", "smollm2-135m", "."])
def test_a_draft_that_does_not_say(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_such_file(repo: str, filename: str) -> None:
        raise CatalogError("no such file")

    monkeypatch.setattr(hub, "fetch_file", no_such_file)
    where = str(tmp_path) if name == "." else name
    kept, notes = unseen_prompts(PROMPTS, [where])
    assert kept == PROMPTS
    assert [where in each and "does not say" in each for each in notes] == [True]


def test_a_draft_of_the_hub_says(draft: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "fetch_file", lambda repo, filename: Path(draft) / filename)
    kept, notes = unseen_prompts(PROMPTS, ["somebody/a-draft"])
    assert kept == PROMPTS[2:]
    assert notes == ["2 of 6 prompts were used to train somebody/a-draft and are left out"]


def test_what_is_no_name_of_a_draft_is_refused() -> None:
    with pytest.raises(OptionError, match=r"did you mean 'smollm2-135m-draft'\?"):
        unseen_prompts(PROMPTS, ["smollm2-135m-draf"])
    with pytest.raises(CatalogError, match="no file or folder at"):
        unseen_prompts(PROMPTS, ["./nowhere"])


def test_digests_are_added_to_those_that_are_listed(draft: str) -> None:
    folder = Path(draft)
    add_training_digests(folder, (each.digest for each in PROMPTS[1:3]))
    assert listed_digests(folder) == {each.digest for each in PROMPTS[:3]}
    add_training_digests(folder / "new", ["a1"])
    assert listed_digests(folder / "new") == {"a1"}
    assert listed_digests(folder / "none") is None


@pytest.mark.parametrize("name", drafts_for("smollm2-135m"))
def test_shipped_drafts_have_seen_none_of_the_built_in_prompts(name: str) -> None:
    digests = training_digests(name)
    assert digests is not None
    assert len(digests) == 184
    assert digests.isdisjoint(each.digest for each in built_in())
