from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from outdraft.errors import OptionError
from outdraft.workload.prompt import CATEGORIES
from outdraft.workload.sets import built_in, choose_prompts, random_prompts

PROMPTS = built_in()


def test_enough_of_every_category() -> None:
    counts = Counter(prompt.category for prompt in PROMPTS)
    assert len(CATEGORIES) == 8
    assert counts.keys() == set(CATEGORIES)
    assert min(counts.values()) >= 50
    assert len(PROMPTS) >= 400, "nothing has to recur within a default run"


def test_ids_and_texts_are_unique() -> None:
    assert len({prompt.id for prompt in PROMPTS}) == len(PROMPTS)
    assert len({prompt.messages for prompt in PROMPTS}) == len(PROMPTS)
    assert all(prompt.id.startswith(f"{prompt.category}-") for prompt in PROMPTS)


def test_lengths_are_those_of_real_requests() -> None:
    for prompt in PROMPTS:
        [message] = prompt.messages
        assert message.role == "user"
        assert message.content == message.content.strip()
        assert 3 <= len(message.content.split()) <= 1500, prompt.id
        assert 8 <= prompt.expected_tokens <= 2048, prompt.id


@pytest.mark.parametrize("category", ["summarization", "code_edit", "extraction"])
def test_what_works_on_a_text_brings_it_along(category: str) -> None:
    """Answers that repeat the prompt are what n-gram lookup lives on."""
    lengths = [len(p.messages[0].content.split()) for p in PROMPTS if p.category == category]
    assert sorted(lengths)[len(lengths) // 2] > 30


def test_categories_are_chosen_by_name() -> None:
    chosen = choose_prompts("built-in", categories=["code", "qa"])
    assert {prompt.category for prompt in chosen} == {"code", "qa"}
    assert choose_prompts("built-in") == PROMPTS
    with pytest.raises(OptionError, match=r"unknown category 'cod' \(did you mean 'code'\?\)"):
        choose_prompts("built-in", categories=["cod"])


def test_random_only_by_force_and_from_its_seed() -> None:
    with pytest.raises(OptionError, match=r"random tokens say nothing.*--force-random"):
        choose_prompts("random")
    forced = choose_prompts("random", force_random=True, seed=3)
    assert forced == random_prompts(len(forced), 3)
    assert forced != choose_prompts("random", force_random=True, seed=4)
    assert len({prompt.id for prompt in forced}) == len(forced)
    assert re.fullmatch(r"([a-z]+ ){127}[a-z]+", forced[0].messages[0].content)


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text('{"prompt": "hello there", "category": "greeting"}\n{"prompt": "bye"}\n')
    chosen = choose_prompts(str(path))
    assert [prompt.category for prompt in chosen] == ["greeting", "other"]
    assert len(choose_prompts(str(path), categories=["other"])) == 1
    with pytest.raises(OptionError, match="unknown category 'code'; valid: greeting, other"):
        choose_prompts(str(path), categories=["code"])
    with pytest.raises(OptionError, match="cannot read"):
        choose_prompts(str(tmp_path / "nothing.jsonl"))


def test_prompts_share_no_long_passage() -> None:
    """Ten words in a row that two prompts share would be a template, or a copy."""
    seen: dict[tuple[str, ...], str] = {}
    for prompt in PROMPTS:
        words = re.findall(r"\w+", prompt.messages[0].content.lower())
        for run in {tuple(words[at : at + 10]) for at in range(len(words) - 9)}:
            assert seen.setdefault(run, prompt.id) == prompt.id, run
