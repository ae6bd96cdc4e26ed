"""The table's facts give the parameter counts that the models were published with, exactly."""

from __future__ import annotations

import json
from importlib import resources

import pytest

from outdraft.plan.models import TABLE, find_published
from outdraft.plan.sizes import active_parameters, num_parameters

PUBLISHED = {
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "llama-3.3-70b": 70_553_706_496,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-3b": 3_085_938_688,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648,
    "qwen3-0.6b": 596_049_920,
    "qwen3-1.7b": 1_720_574_976,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "qwen3-14b": 14_768_307_200,
    "qwen3-32b": 32_762_123_264,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b": 235_093_634_560,
    "mistral-7b-v0.3": 7_248_023_552,
    "mistral-nemo": 12_247_782_400,
    "mistral-small-24b": 23_572_403_200,
    "mixtral-8x7b": 46_702_792_704,
    "gpt-oss-20b": 20_914_757_184,
    "gpt-oss-120b": 116_829_156_672,
    "smollm2-135m": 134_515_008,
    "smollm2-360m": 361_821_120,
    "smollm2-1.7b": 1_711_376_384,
    "deepseek-v3": 671_026_419_200,
}


@pytest.mark.parametrize("name", TABLE)
def test_published_parameters(name: str) -> None:
    assert num_parameters(TABLE[name].spec) == PUBLISHED[name]


@pytest.mark.parametrize(
    ("name", "billions"),
    [("qwen3-30b-a3b", 3.3), ("qwen3-235b-a22b", 22), ("deepseek-v3", 37), ("mixtral-8x7b", 12.9)],
)
def test_published_active_parameters(name: str, billions: float) -> None:
    found = active_parameters(TABLE[name].spec)
    assert found / 1e9 == pytest.approx(billions, rel=0.03)


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("Llama-3.1-8B", "llama-3.1-8b"),
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "mistral-7b-v0.3"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"),
        ("mistralai/Mistral-Nemo-Instruct-2407", "mistral-nemo"),
        ("HuggingFaceTB/SmolLM2-1.7B-Instruct", "smollm2-1.7b"),
        ("someone/Llama-3.1-8B-Instruct-FP8", None),  # other bytes than the table's
        ("llama", None),
    ],
)
def test_names(asked: str, found: str | None) -> None:
    entry = find_published(asked)
    assert (entry and entry.name) == found


def test_every_hub_id_finds_its_entry() -> None:
    file = resources.files("outdraft.plan") / "published.json"
    for name, config in json.loads(file.read_text()).items():
        assert find_published(config["hub_id"]) is TABLE[name]
