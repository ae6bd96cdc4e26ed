"""A tiny target, and texts it wrote, made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from outdraft.distill.clock import silent
from outdraft.distill.data import DataSettings, held_out_path, make_data, shard_paths
from outdraft.distill.shards import Corpus
from outdraft.distill.target import Target, load_target
from outdraft.testing.tiny_models import tiny_model
from outdraft.workload.prompt import Message, Prompt

SETTINGS = DataSettings(
    room=96, max_tokens=24, top=8, shard_texts=24, max_answer_tokens=400, held_out_tokens=24
)


def tiny_prompts() -> list[Prompt]:
    words = ["the code", "a draft", "in the batch", "you and the model", "for this token", "of it"]
    return [
        Prompt(f"p-{i}", category, (Message("user", f"{word} {i}\n\nis that for {word}"),), 24)
        for category in ("chat", "code")
        for i, word in enumerate(words)
    ]


@pytest.fixture(scope="session")
def target_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("distill") / "target", "smollm2", layers=3)


@pytest.fixture(scope="session")
def target(target_path: Path) -> Target:
    return load_target(str(target_path), device="cpu", dtype="float32")


@pytest.fixture(scope="session")
def data(target: Target, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    make_data(target, tiny_prompts(), folder, SETTINGS, silent)
    return folder


@pytest.fixture(scope="session")
def corpus(data: Path) -> Corpus:
    return Corpus(shard_paths(data))


@pytest.fixture(scope="session")
def held_out(data: Path) -> Corpus:
    return Corpus([held_out_path(data)])
