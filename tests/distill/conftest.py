"""A tiny target, and texts it wrote, made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from outdraft.distill.data.dataset import held_out_path, make_data, shard_paths
from outdraft.distill.data.prompts import held_out as held_out_of
from outdraft.distill.data.shards import Corpus
from outdraft.distill.settings import DataSettings
from outdraft.distill.target import Target, load_target
from outdraft.testing.tiny_models import tiny_model
from outdraft.workload.prompt import Message, Prompt

SETTINGS = DataSettings(
    room=96,
    answer_tokens=24,
    top_logits=8,
    shard_texts=24,
    max_answer_tokens=400,
    held_out_tokens=24,
)


def no_progress(stage: str, share: float, words: str) -> None:
    """Shows nothing."""


def tiny_prompts() -> tuple[list[Prompt], list[Prompt]]:
    """To train on, and held out."""
    words = ["the code", "a draft", "in the batch", "you and the model", "for this token", "of it"]
    prompts = [
        Prompt(f"p-{i}", category, (Message("user", f"{word} {i}\n\nis that for {word}"),), 24)
        for category in ("chat", "code")
        for i, word in enumerate(words)
    ]
    unseen = held_out_of(prompts)
    return [each for each in prompts if each not in unseen], unseen


@pytest.fixture(scope="session")
def target_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("distill") / "target", "smollm2", layers=3)


@pytest.fixture(scope="session")
def target(target_path: Path) -> Target:
    return load_target(str(target_path), device="cpu", dtype="float32")


@pytest.fixture(scope="session")
def data(target: Target, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    make_data(target, *tiny_prompts(), folder, SETTINGS, no_progress)
    return folder


@pytest.fixture(scope="session")
def corpus(data: Path) -> Corpus:
    return Corpus(shard_paths(data))


@pytest.fixture(scope="session")
def held_out(data: Path) -> Corpus:
    return Corpus([held_out_path(data)])
