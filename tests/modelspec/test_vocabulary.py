"""Token lists out of tokenizer.json and GGUF headers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from outdraft.engine.tokenizer import load_tokenizer
from outdraft.errors import CorruptFileError
from outdraft.modelspec.vocabulary import read_vocabulary, vocabulary_difference
from outdraft.testing.tiny_models import tiny_gguf, tiny_model


def edit(folder: Path, file: str, change: Any) -> Path:
    path = folder / file
    contents = json.loads(path.read_text())
    change(contents)
    path.write_text(json.dumps(contents))
    return folder


def test_a_folder_and_its_gguf_file_have_the_same_tokens(tmp_path: Path) -> None:
    folder = read_vocabulary(tiny_model(tmp_path / "model", "llama"))
    file = read_vocabulary(tiny_gguf(tmp_path / "model.gguf", vocab=400))
    assert folder is not None
    assert file is not None
    assert vocabulary_difference(folder.tokens, file.tokens) is None, (
        "rows that only pad are no tokens"
    )
    assert folder == file
    assert folder.special == {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}
    assert folder.named == {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}
    assert folder.chat_template is not None


@pytest.mark.model
def test_the_tokens_are_those_of_the_engine(smollm2_path: Path) -> None:
    found = read_vocabulary(smollm2_path)
    assert found is not None
    assert {text: index for index, text in found.tokens.items()} == load_tokenizer(
        smollm2_path
    ).vocab()


def test_the_first_difference_is_named(tmp_path: Path) -> None:
    ours = read_vocabulary(tiny_model(tmp_path / "a", "llama"))
    shorter = read_vocabulary(tiny_model(tmp_path / "b", "llama", vocab=300))

    def swap(contents: Any) -> None:
        vocab = contents["model"]["vocab"]
        names = {index: text for text, index in vocab.items()}
        vocab[names[40]], vocab[names[41]] = 41, 40

    swapped = read_vocabulary(edit(tiny_model(tmp_path / "c", "llama"), "tokenizer.json", swap))
    assert ours is not None
    assert shorter is not None
    assert swapped is not None
    said = vocabulary_difference(ours.tokens, shorter.tokens)
    assert said is not None
    assert "has 384 tokens, the draft's 300" in said
    assert "id 300: " in said
    assert said.endswith("nothing in the draft")
    said = vocabulary_difference(ours.tokens, swapped.tokens)
    assert said is not None
    assert f"id 40: {ours.tokens[40]!r} in the target, {ours.tokens[41]!r} in the draft" in said


def test_other_layouts(tmp_path: Path) -> None:
    folder = tiny_model(tmp_path / "model", "llama")

    def listed(contents: Any) -> None:  # as a unigram model has it
        vocab = sorted(contents["model"]["vocab"].items(), key=lambda each: each[1])
        contents["model"]["vocab"] = [[text, -1.0] for text, _ in vocab]

    before = read_vocabulary(folder)
    edit(folder, "tokenizer.json", listed)

    def spelled(contents: Any) -> None:
        contents["eos_token"] = {"content": contents["eos_token"]}
        contents["chat_template"] = [
            {"name": "default", "template": contents["chat_template"]},
            {"name": "tools", "template": "x"},
        ]

    edit(folder, "tokenizer_config.json", spelled)
    assert read_vocabulary(folder) == before
    (folder / "chat_template.jinja").write_text("alone")
    found = read_vocabulary(folder)
    assert found is not None
    assert found.chat_template == "alone"


def test_no_tokenizer_and_a_broken_one(tmp_path: Path) -> None:
    folder = tiny_model(tmp_path / "model", "llama")
    (folder / "tokenizer.json").write_text('{"model": {}}')
    with pytest.raises(CorruptFileError, match=r"tokenizer\.json is no tokenizer"):
        read_vocabulary(folder)
    (folder / "tokenizer.json").unlink()
    assert read_vocabulary(folder) is None
