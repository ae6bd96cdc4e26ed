"""Names that other engines understand, and files that are looked at without fetching any."""

from __future__ import annotations

from pathlib import Path

import pytest

from outdraft.catalog import (
    drafts_for,
    engine_model_name,
    header_files,
    local_files,
    local_path,
    resolve,
    shipped_draft,
)
from outdraft.catalog.entries import CATALOG, SHIPPED_DRAFTS
from outdraft.catalog.lookup import hub_address
from outdraft.errors import CatalogError, OptionError
from outdraft.modelspec.head import draft_method


def test_names_of_the_catalog_become_what_an_engine_finds(tmp_path: Path) -> None:
    notes: list[str] = []
    assert engine_model_name("smollm2-135m", notes) == "HuggingFaceTB/SmolLM2-135M-Instruct"
    assert len(notes) == 1
    head = Path(engine_model_name("smollm2-135m-eagle", notes))
    assert (head / "config.json").is_file()
    assert Path(engine_model_name("smollm2-135m-draft", notes)).is_file()
    assert engine_model_name(str(tmp_path), notes) == str(tmp_path)
    assert engine_model_name("org/name", notes) == "org/name"


@pytest.mark.parametrize("name", SHIPPED_DRAFTS)
def test_a_draft_that_ships_is_found_by_its_target_and_method(name: str) -> None:
    method = draft_method(SHIPPED_DRAFTS[name].path)
    assert method is not None
    original = CATALOG["smollm2-135m"].hub_id  # the draft fits it as it fits the quantized one
    for target in ("smollm2-135m", "SmolLM2-135M-Instruct", original):
        assert name in drafts_for(target)
        assert shipped_draft(target, method) == name


def test_a_target_without_a_draft_is_told_what_there_is() -> None:
    with pytest.raises(OptionError) as told:
        shipped_draft("org/mine", "eagle")
    assert str(told.value) == (
        "method eagle needs a draft, and none ships for org/mine (there is smollm2-135m-eagle for "
        "smollm2-135m); name one with --draft, or make one with `outdraft distill`"
    )


def test_local_files_fetch_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTDRAFT_CACHE", str(tmp_path / "cache"))
    assert local_files("smollm2-135m") is None
    assert local_files("org/name") is None
    assert local_files("org/name:model.gguf") is None
    assert not (tmp_path / "cache").exists()
    entry = CATALOG["smollm2-135m"]
    cached = tmp_path / "cache" / "models" / entry.name / entry.filename
    cached.parent.mkdir(parents=True)
    cached.write_bytes(b"cut short")
    assert local_files("smollm2-135m") is None, "another size"
    with cached.open("r+b") as file:
        file.truncate(entry.num_bytes)
    files = local_files("SmolLM2-135M-Instruct")
    assert files is not None
    assert (files.name, files.path, files.source) == ("smollm2-135m", cached, "catalog")


def test_shipped_drafts_are_local() -> None:
    draft, head = local_files("smollm2-135m-draft"), local_files("SmolLM2-135M-Eagle")
    assert draft is not None
    assert head is not None
    assert (draft.kind, head.kind, head.name) == ("gguf", "folder", "smollm2-135m-eagle")
    assert local_path("smollm2-135m-draft") == draft.path
    assert local_path("~nobody-at-all/x") == Path("~nobody-at-all/x")
    with header_files("smollm2-135m-eagle") as files:
        assert files == head


def test_a_path_that_is_not_there_is_refused() -> None:
    outside = (
        "o/n:../x.gguf",
        "o/n:a/../../x.gguf",
        "o/n:/x.gguf",
        "o/n:a\\x.gguf",
        "o/n:x\0.gguf",
    )
    for name in ("./nowhere", "nowhere.gguf", "a/b.gguf", *outside):
        with pytest.raises(CatalogError, match="no file or folder at"):
            local_files(name)


def test_names_of_files_on_the_hub() -> None:
    assert hub_address("org/name:model.Q4_1.gguf") == ("org/name", "model.Q4_1.gguf")
    assert hub_address("org/name/model.Q4_1.gguf") == ("org/name", "model.Q4_1.gguf")
    assert hub_address("org/name:Q4/model 1.gguf") == ("org/name", "Q4/model 1.gguf")
    assert hub_address("org/name") == ("org/name", None)
    with pytest.raises(OptionError, match="unknown model 'org/a/b'"):
        hub_address("org/a/b")


def test_local_paths(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    (tmp_path / "m.bin").write_bytes(b"")
    assert resolve(str(tmp_path)).kind == "folder"
    assert resolve(str(tmp_path / "m.gguf")).kind == "gguf"
    with pytest.raises(CatalogError, match=r"single \.bin file; give a \.gguf"):
        resolve(str(tmp_path / "m.bin"))


@pytest.mark.parametrize("name", ["./nowhere", "/nowhere/at/all", "nowhere.gguf", "a/b.gguf"])
def test_a_path_that_is_not_there(name: str) -> None:
    with pytest.raises(CatalogError, match=r"no file or folder at .*smollm2-135m"):
        resolve(name)


def test_an_unknown_name_lists_the_catalog() -> None:
    with pytest.raises(
        OptionError, match=r"'smollm2-135' \(did you mean 'smollm2-135m'\?\); valid"
    ):
        resolve("smollm2-135")
