from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from outdraft.errors import OptionError
from outdraft.workload.files import read_prompts
from outdraft.workload.prompt import Message


def written(folder: Path, *entries: Any, name: str = "mine.jsonl") -> Path:
    path = folder / name
    path.write_text("\n".join(json.dumps(entry) for entry in entries))
    return path


@pytest.mark.parametrize(
    ("entry", "id", "category", "text"),
    [
        ({"prompt": "Hi", "category": "chat", "id": "a"}, "a", "chat", "Hi"),
        ({"text": "Hi"}, "mine-1", "other", "Hi"),
        ({"messages": [{"role": "user", "content": "Hi"}]}, "mine-1", "other", "Hi"),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]},
            "mine-1",
            "other",
            "Hi",
        ),
        (
            {"id": "s", "conversations": [{"from": "human", "value": "Hi"},
                                          {"from": "gpt", "value": "Hello"}]},
            "s", "other", "Hi",
        ),
        (
            {"custom_id": "c", "body": {"messages": [{"role": "user", "content": "Hi"}]}},
            "c", "log", "Hi",
        ),
        ({"request": {"prompt": "Hi", "max_tokens": 9}}, "mine-1", "log", "Hi"),
        (
            {"question_id": 81, "category": "writing", "turns": ["Hi", "More"]},
            "81", "writing", "Hi",
        ),
        ({"question": "2 + 2?", "answer": "4 #### 4"}, "mine-1", "math", "2 + 2?"),
    ],
)  # fmt: skip
def test_layouts(tmp_path: Path, entry: Any, id: str, category: str, text: str) -> None:
    [prompt] = read_prompts(written(tmp_path, entry))
    assert (prompt.id, prompt.category) == (id, category)
    assert prompt.messages == (Message("user", text),)


def test_humaneval(tmp_path: Path) -> None:
    entry = {
        "task_id": "HumanEval/0",
        "prompt": "def f():\n",
        "canonical_solution": "x",
        "test": "",
    }
    [prompt] = read_prompts(written(tmp_path, entry))
    assert prompt.category == "code"
    assert prompt.messages[0].content.endswith("def f():\n")


def test_a_conversation_ends_with_its_last_user_turn(tmp_path: Path) -> None:
    turns = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "One"},
        {"role": "assistant", "content": "1"},
        {"role": "user", "content": "Two"},
        {"role": "assistant", "content": "2"},
    ]
    [prompt] = read_prompts(written(tmp_path, {"messages": turns}))
    assert [m.role for m in prompt.messages] == ["system", "user", "assistant", "user"]


def test_a_json_list(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    path.write_text(json.dumps([{"prompt": "a"}, {"prompt": "b"}]))
    assert [prompt.id for prompt in read_prompts(path)] == ["list-1", "list-2"]


def test_the_logged_limit_is_what_is_expected(tmp_path: Path) -> None:
    body = {"messages": [{"role": "user", "content": "Hi"}], "max_completion_tokens": 77}
    [prompt] = read_prompts(written(tmp_path, {"body": body}))
    assert prompt.expected_tokens == 77


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ('{"prompt": "a"}\n{"prompt": ', "line 2: not JSON"),
        ('{"prompt": "a"}\n\n[1]', "line 3: not an object"),
        ('{"prompt": "a"}\n{"nothing": 1}', "entry 2"),
        ('{"prompt": "a"}\n{"prompt": ""}', "entry 2: an empty"),
        ('{"prompt": "a"}\n{"prompt": 5}', "entry 2"),
        ('{"prompt": "a", "expected_tokens": -1}', "entry 1: expected_tokens"),
        ('{"messages": [{"role": "assistant", "content": "a"}]}', "no user turn"),
        ('{"messages": [{"role": "robot", "content": "a"}]}', "unknown role 'robot'"),
        ('{"foo": 1, "bar": 2}', "bar, foo"),
        ('{"prompt": "a", "id": "x"}\n{"prompt": "b", "id": "x"}', "'x' comes twice"),
        ("", "no entries"),
    ],
)
def test_refused_with_the_place(tmp_path: Path, lines: str, words: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(lines)
    with pytest.raises(OptionError) as error:
        read_prompts(path)
    assert words in str(error.value)


def test_unreadable(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="cannot read"):
        read_prompts(tmp_path / "none.jsonl")
    (tmp_path / "latin.jsonl").write_bytes(b'{"prompt": "\xe9"}')
    with pytest.raises(OptionError, match="UTF-8"):
        read_prompts(tmp_path / "latin.jsonl")


def test_a_line_ends_at_a_newline_alone(tmp_path: Path) -> None:
    """U+2028 and U+0085 are letters of a JSON string, though Python's splitlines splits there."""
    path = tmp_path / "mine.jsonl"
    path.write_text('{"prompt": "one\u2028two"}\n{"prompt": "three\x85four"}', encoding="utf-8-sig")
    texts = [prompt.messages[0].content for prompt in read_prompts(path)]
    assert texts == ["one\u2028two", "three\x85four"]
