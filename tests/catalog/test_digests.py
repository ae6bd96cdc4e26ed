"""Digests of models: the same files, the same digest; anything else, another one."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from outdraft.catalog import digests, hub
from outdraft.catalog.digests import model_digest
from outdraft.distill.pipeline import REPORT
from outdraft.errors import CatalogError

from .fake_hub import COMMIT


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("config.json", "model-1.safetensors", "model-2.safetensors", "merges.txt"):
        (folder / name).write_bytes(name.encode() * 100)
    return folder


@pytest.mark.parametrize(
    "name", ["config.json", "model-1.safetensors", "model-2.safetensors", "merges.txt"]
)
def test_one_byte_in_the_middle_is_another_model(model: Path, name: str) -> None:
    before, path = model_digest(str(model)), model / name
    status, data = path.stat(), bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))  # as `cp -p` may leave it
    assert model_digest(str(model)) != before


def test_files_that_change_places_are_another_model(model: Path) -> None:
    before = model_digest(str(model))
    one, two = model / "model-1.safetensors", model / "model-2.safetensors"
    data = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(data)
    assert model_digest(str(model)) != before


def test_a_copy_and_a_new_card_are_the_same_model(model: Path, tmp_path: Path) -> None:
    before = model_digest(str(model))
    (model / "README.md").write_text("A card.")
    (model / ".cache").write_text("The hub's own.")
    (model / "work").mkdir()
    assert model_digest(str(model)) == before
    assert model_digest(str(model.rename(tmp_path / "elsewhere"))) == before


def test_measuring_a_draft_again_leaves_it_the_same_model(model: Path) -> None:
    before = model_digest(str(model))
    for name in (REPORT, "eval_results.json", "training_prompts.txt"):
        (model / name).write_text("{}")
    assert model_digest(str(model)) == before
    (model / "generation_config.json").write_text("{}")
    assert model_digest(str(model)) != before


def test_weights_in_folders_count_where_an_index_names_them(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("a", "b", "work"):
        (model / place).mkdir()
        (model / place / "shard.safetensors").write_text(place)
    (model.parent / "outside.safetensors").write_text("outside")
    names = ["a/shard.safetensors", "b/shard.safetensors", "gone.safetensors"]
    outside = ["../outside.safetensors", str(model.parent / "outside.safetensors"), "\0", 7]
    index = model / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": dict(enumerate(names + outside[:2]))}))
    before = model_digest(str(model))
    (model / "work" / "shard.safetensors").write_text("texts, no weights")
    (model.parent / "outside.safetensors").write_text("another")
    assert model_digest(str(model)) == before
    monkeypatch.chdir(model / "a")
    assert model_digest("..") == before, "from within"
    (model / "a" / "shard.safetensors").write_text("b")
    (model / "b" / "shard.safetensors").write_text("a")
    assert model_digest(str(model)) != before, "they have changed places"
    for weight_map in (dict(enumerate(outside)), names, None):
        index.write_text(json.dumps({"weight_map": weight_map}))
        model_digest(str(model))  # what is damaged, the engine will say


def test_all_shards_of_a_gguf_count(tmp_path: Path) -> None:
    first, second = (tmp_path / f"m-0000{n}-of-00002.gguf" for n in (1, 2))
    first.write_bytes(b"GGUF one")
    second.write_bytes(b"GGUF two")
    before = model_digest(str(first))
    second.write_bytes(b"GGUF new")
    assert model_digest(str(first)) != before


def test_a_large_file_is_hashed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTDRAFT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(digests, "_KEPT_BYTES", 4)
    hashed = []
    monkeypatch.setattr(digests, "sha256_of", lambda path: hashed.append(path) or f"{len(hashed)}")
    path = tmp_path / "draft.gguf"
    path.write_bytes(b"GGUF one")
    first = model_digest(str(path))
    assert model_digest(str(path)) != first, "it has just been written, and may be once more"
    later = time.time() + 60
    monkeypatch.setattr(digests.time, "time", lambda: later)
    kept = model_digest(str(path))
    assert model_digest(str(path)) == kept
    assert len(hashed) == 3
    status = path.stat()
    path.write_bytes(b"GGUF two")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert model_digest(str(path)) != kept, "its times look the same but for the ctime"
    monkeypatch.setenv("OUTDRAFT_CACHE", str(path))  # no folder: nothing can be kept
    model_digest(str(path))
    assert len(hashed) == 5


def test_what_only_the_engine_fetches_has_a_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    class Metadata:
        commit_hash = COMMIT

    monkeypatch.setattr(hub, "file_metadata", lambda repo, filename: Metadata)
    assert model_digest("org/name") == f"revision {COMMIT[:16]}"
    assert model_digest("a-name-of-the-engines-own") == "unknown"


def test_without_the_hub_its_cache_says_the_revision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_hub(repo: str, filename: str) -> None:
        raise CatalogError("no network")

    class Library:
        @staticmethod
        def try_to_load_from_cache(repo: str, filename: str) -> str | None:
            return f"/hub/models--org--name/snapshots/{COMMIT}/{filename}" if "n" in repo else None

    monkeypatch.setattr(hub, "file_metadata", no_hub)
    monkeypatch.setattr(hub, "_library", lambda: Library)
    assert model_digest("org/name") == f"revision {COMMIT[:16]}"
    assert model_digest("org/name:q4/file.gguf") == f"revision {COMMIT[:16]}"
    assert model_digest("org/other") == "unknown"
