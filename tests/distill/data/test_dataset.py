from __future__ import annotations

import json
import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from outdraft.distill.data.dataset import data_folders, make_data, shard_paths
from outdraft.distill.data.sampler import SampledText
from outdraft.distill.data.shards import Corpus, TrainingText, write_shard
from outdraft.distill.target import Target
from outdraft.errors import OptionError
from outdraft.workload.prompt import Message
from outdraft.workload.training import listed_digests
from tests.distill.conftest import SETTINGS, no_progress, tiny_prompts


def test_texts_are_the_targets_own(target: Target, corpus: Corpus) -> None:
    assert corpus.num_answer_tokens >= 400
    which = [i for i, heat in enumerate(corpus.temperatures.tolist()) if heat == 0][:6]
    batch = corpus.batch(which, torch.device("cpu"))
    hidden, _ = target.network(batch.tokens)
    logits = target.network.logits(hidden)[:, :-1][batch.is_answer[:, 1:]]
    assert torch.equal(logits.argmax(1), batch.tokens[batch.is_answer])
    assert torch.equal(logits.argmax(1), batch.top_ids[:, 0])
    expected = logits.log_softmax(1).gather(1, batch.top_ids)
    assert torch.allclose(expected, batch.top_logprobs, atol=0.02)


def test_temperatures_are_spread(corpus: Corpus, held_out: Corpus) -> None:
    heats = corpus.temperatures
    assert 0.2 < (heats == 0).float().mean() < 0.8
    assert heats[heats > 0].min() >= 0.3
    assert heats.max() <= 1
    assert sorted(set(held_out.temperatures.tolist())) == pytest.approx([0, 0.7, 1.0])


def test_a_run_goes_on_where_it_was_killed(target: Target, data: Path, tmp_path: Path) -> None:
    paths = shard_paths(data)
    assert len(paths) > 1
    for name in ("data.json", "held-out.safetensors", paths[0].name):
        (tmp_path / name).write_bytes((data / name).read_bytes())
    (tmp_path / f".{paths[1].name}.half").write_bytes(b"a write that did not end")
    make_data(target, *tiny_prompts(), tmp_path, SETTINGS, no_progress)
    assert [path.name for path in shard_paths(tmp_path)] == [path.name for path in paths]
    assert shard_paths(tmp_path)[1].read_bytes() == paths[1].read_bytes()


def test_a_shard_that_was_removed_is_made_again(target: Target, data: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(data, tmp_path / "data")
    before = {path.name: path.read_bytes() for path in shard_paths(folder)}
    shard_paths(folder)[0].unlink()
    make_data(target, *tiny_prompts(), folder, SETTINGS, no_progress)
    assert {path.name: path.read_bytes() for path in shard_paths(folder)} == before


def test_a_folder_lists_the_prompts_of_all_its_texts(
    target: Target, data: Path, tmp_path: Path
) -> None:
    training, held_out = tiny_prompts()
    first = {prompt.digest for prompt in training}
    assert listed_digests(data) == first
    folder = shutil.copytree(data, tmp_path / "data")
    other = [replace(each, messages=(Message("user", f"other {each.id}"),)) for each in training]
    second = {prompt.digest for prompt in other}
    make_data(target, other, held_out, folder, SETTINGS, no_progress)
    assert listed_digests(folder) == first, "there were texts enough"
    shard_paths(folder)[-1].unlink()
    make_data(target, other, held_out, folder, SETTINGS, no_progress)
    assert listed_digests(folder) == first | second


def test_texts_of_other_settings_are_not_mixed(target: Target, data: Path) -> None:
    with pytest.raises(OptionError, match="made with top 8, now it is 4; choose another --data"):
        make_data(target, *tiny_prompts(), data, replace(SETTINGS, top_logits=4), no_progress)


def test_several_runs_write_for_one_training(target: Target, data: Path, tmp_path: Path) -> None:
    for name in ("1", "2"):
        shutil.copytree(data, tmp_path / name)
    (tmp_path / "empty").mkdir()
    assert data_folders(tmp_path, target) == [tmp_path / "1", tmp_path / "2"]
    assert data_folders(data, target) == [data]
    assert data_folders(tmp_path / "nowhere", target) == []
    manifest = tmp_path / "2" / "data.json"
    made = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**made, "top": 5}))
    with pytest.raises(OptionError, match=r"2 keeps 5 likeliest tokens, .*1 8; they cannot"):
        data_folders(tmp_path, target)
    manifest.write_text(json.dumps({**made, "target": {"name": "other"}}))
    with pytest.raises(OptionError, match="2 holds texts of another target"):
        data_folders(tmp_path, target)


def test_no_room_is_said_at_once(target: Target, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="give a larger --room"):
        make_data(target, *tiny_prompts(), tmp_path, replace(SETTINGS, room=26), no_progress)


def test_an_epoch_has_every_text_once_in_batches_that_fit(corpus: Corpus) -> None:
    batches = corpus.epoch(200, seed=1)
    assert sorted(index for batch in batches for index in batch) == list(range(len(corpus)))
    sizes = [len(batch) * max(corpus.lengths[index] for index in batch) for batch in batches]
    assert max(sizes) <= 200 or all(len(b) == 1 for b, s in zip(batches, sizes, strict=True)
                                    if s > 200)  # fmt: skip
    assert batches == corpus.epoch(200, seed=1)
    assert batches != corpus.epoch(200, seed=2)


def test_frequencies_count_answers_alone(corpus: Corpus) -> None:
    counts = corpus.frequencies(384)
    assert int(counts.sum()) == corpus.num_answer_tokens
    index = random.Random(0).randrange(len(corpus))
    answer = list(corpus.answers())[index]
    assert all(counts[token] > 0 for token in answer.tolist())


def test_a_damaged_shard_is_named(tmp_path: Path) -> None:
    path = tmp_path / "shard-00000.safetensors"
    path.write_bytes(b"nothing")
    with pytest.raises(OptionError, match=r"shard-00000.safetensors is no shard of texts"):
        Corpus([path])


def test_shards_of_short_and_long_ids_are_read_together(tmp_path: Path) -> None:
    """A shard without ids over 65,535 is stored in 16 bits, whatever the other shards need."""
    paths = []
    for token in (40_000, 100_000):
        ids, logprobs = torch.tensor([[token]]).int(), torch.zeros(1, 1).half()
        answer = SampledText(torch.tensor([7]).int(), ids, logprobs, has_ended=True)
        paths.append(tmp_path / f"{token}.safetensors")
        write_shard(paths[-1], [TrainingText([1, 2], answer, 0.0, "chat")])
    for order in (paths, paths[::-1]):
        batch = Corpus(order).batch([0, 1], torch.device("cpu"))
        assert sorted(batch.top_ids.flatten().tolist()) == [40_000, 100_000]
