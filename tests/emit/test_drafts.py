"""Draft files by what they are, and who can load them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from outdraft.backends.backend import Serving
from outdraft.catalog.entries import SHIPPED_DRAFTS
from outdraft.emit import engine_config, needs_folder, write_form
from outdraft.errors import OptionError, PairingError
from outdraft.speculation import Speculation
from outdraft.testing.tiny_heads import tiny_head
from outdraft.testing.tiny_models import tiny_gguf, tiny_model
from tests.emit.reading import value_of

SHIPPED, HEAD = "smollm2-135m-draft", "smollm2-135m-eagle"


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_engines_of_folders(engine: str) -> None:
    assert needs_folder(engine, SHIPPED)
    assert needs_folder(engine, HEAD), "it is in blocks"
    assert needs_folder(engine, "/m/d.gguf")
    assert needs_folder(engine, "org/name:d.Q8_0.gguf")
    for draft in ("org/name", "./folder"):
        assert not needs_folder(engine, draft)


def test_others_take_files_as_they_are() -> None:
    assert not needs_folder("llamacpp", SHIPPED)
    assert not needs_folder("outdraft", SHIPPED)
    assert not needs_folder("outdraft", HEAD)


@pytest.mark.parametrize("form", ["compose", "k8s"])
def test_our_own_image_has_the_drafts_that_ship(form: str) -> None:
    """By name: the folder of this installation is not in it. Models go where its user may write."""
    head = Speculation("eagle", draft=HEAD, k=4)
    text = write_form(engine_config("outdraft", head, Serving("smollm2-135m")), form)
    assert HEAD in text
    assert str(SHIPPED_DRAFTS[HEAD].path) not in text
    assert "/models" in text
    assert "huggingface" not in text
    assert "GPU" not in text


def draft_file(draft: str) -> str | None:
    speculation = Speculation("draft_model", draft=draft, k=4)
    config = engine_config("llamacpp", speculation, Serving("/m/t.gguf"), version="any")
    assert config.models[1] == value_of(config, "--spec-draft-model")
    return value_of(config, "--spec-draft-model")


def test_the_file_for_llamacpp(tmp_path: Path) -> None:
    assert draft_file(SHIPPED) == str(SHIPPED_DRAFTS[SHIPPED].path)
    assert draft_file("/nowhere/d.gguf") == "/nowhere/d.gguf"
    file = tiny_gguf(tmp_path / "one" / "d.gguf")
    assert draft_file(str(file.parent)) == str(file)
    folder = tiny_model(tmp_path / "folder", "llama")
    with pytest.raises(OptionError, match=r"no \.gguf file"):
        draft_file(str(folder))
    with pytest.raises(PairingError, match="is a head, not a model; use method eagle"):
        draft_file(HEAD)


def test_llamacpp_is_not_given_a_head_that_it_cannot_load() -> None:
    head = Speculation("eagle", draft=HEAD, k=4)
    with pytest.raises(OptionError, match=r"folder of a head.*convert_hf_to_gguf"):
        engine_config("llamacpp", head, Serving("/m/t.gguf"), version="any")


def test_heads_that_sglang_computes_otherwise(tmp_path: Path) -> None:
    serving = Serving("org/t")
    head = Speculation("eagle", draft=HEAD, k=4)
    for engine, version in (("sglang", "0.5.23"), ("vllm", "0.32.0")):
        with pytest.raises(OptionError, match=r"outdraft export \S*smollm2-135m-eagle --out DIR"):
            engine_config(engine, head, serving, version=version)
    target = tiny_model(tmp_path / "target", "llama", layers=3)
    nested = tiny_head(tmp_path / "nested", target, fitted=False)
    assert engine_config("vllm", replace(head, draft=str(nested)), serving, version="0.32.0").flags
    normed = tiny_head(tmp_path / "normed", target, fitted=False, norm_before_residual=True)
    with pytest.raises(OptionError, match="norm_before_residual"):
        engine_config("sglang", replace(head, draft=str(normed)), serving, version="0.5.23")
    with pytest.raises(OptionError, match="layout of speculators"):
        engine_config("sglang", replace(head, draft=str(nested)), serving, version="0.5.23")
    flat = tiny_head(tmp_path / "flat", target, fitted=False, layout="original")
    config = engine_config("sglang", replace(head, draft=str(flat)), serving, version="0.5.23")
    assert value_of(config, "--speculative-draft-model-path") == str(flat)
