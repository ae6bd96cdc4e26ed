from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from outdraft.cli.main import find_command
from outdraft.errors import OptionError
from outdraft.testing.tiny_models import tiny_model
from outdraft.tune.run import plan_run
from outdraft.tune.settings import RunSettings
from outdraft.workload.files import read_prompts
from outdraft.workload.prompt import Message
from outdraft.workload.settings import plan_loads, prompts_from


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
        (
            {"custom_id": "c", "method": "POST", "url": "/v1/chat/completions", "body": {
                "model": "m", "messages": [{"role": "user", "content": "Hi"}],
                "metadata": {"category": "billing"}}},
            "c", "billing", "Hi",
        ),
        (
            {"custom_id": "c", "metadata": {"category": "billing"},
             "body": {"messages": [{"role": "user", "content": "Hi"}]}},
            "c", "billing", "Hi",
        ),
        (
            {"custom_id": "c", "body": json.dumps({"prompt": "Hi", "metadata": {"other": "x"}})},
            "c", "log", "Hi",
        ),
        (
            {"messages": [{"role": "user", "content": "Hi"}], "metadata": {"category": "billing"}},
            "mine-1", "billing", "Hi",
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
        ('{"prompt": "a"}\n{"nothing": 1}', "line 2: no known layout has the keys nothing"),
        ('{"prompt": "a"}\n{"prompt": ""}', "line 2: an empty"),
        ('{"prompt": "a"}\n{"prompt": 5}', "line 2: an empty or unreadable text: '5'"),
        ('{"prompt": "a", "expected_tokens": -1}', "line 1: expected_tokens"),
        ('{"messages": [{"role": "assistant", "content": "a"}]}', "line 1: no user turn"),
        (
            '{"messages": [{"role": "robot", "content": "a"}]}',
            "line 1: unknown role 'robot'; valid: ",
        ),
        ('{"foo": 1, "bar": 2}', "line 1: no known layout has the keys bar, foo"),
        ('[{"prompt": "a"}, {"prompt": ""}]', "entry 2: an empty"),
        (
            '{"body": {"prompt": "a"}}\n{"url": "/v1/embeddings", "body": {"input": "a"}}',
            "line 2: the logged request to /v1/embeddings has neither messages nor a prompt",
        ),
        (
            '{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, '
            '{"type": "image_url", "image_url": {}}]}]}',
            "line 1: a part of type 'image_url'",
        ),
        (
            '{"prompt": "a", "id": "x"}\n{"prompt": "b", "id": "x"}',
            "line 2: the prompt id 'x' comes twice",
        ),
        ("", "no entries"),
    ],
)
def test_refused_with_the_place(tmp_path: Path, lines: str, words: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(lines)
    with pytest.raises(OptionError) as error:
        read_prompts(path)
    assert words in str(error.value)


def test_lines_of_several_layouts(tmp_path: Path) -> None:
    first, second = {"prompt": "a", "system": "Be brief."}, {"body": {"prompt": "b"}}
    own, logged = read_prompts(written(tmp_path, first, second))
    assert own.messages == (Message("system", "Be brief."), Message("user", "a"))
    assert (logged.category, logged.messages) == ("log", (Message("user", "b"),))


def test_what_is_left_out_is_said_with_its_line(tmp_path: Path) -> None:
    notes: list[str] = []
    tools = [{"type": "function"}]
    path = written(
        tmp_path,
        {"prompt": "a", "category": "x", "answer": "of no matter"},
        {"prompt": "b", "catgory": "x"},
        {"prompt": "c", "catgory": "x", "images": ["i.png"]},
        {"body": {"prompt": "d", "tools": tools, "temperature": 1, "response_format": None}},
    )
    assert len(read_prompts(path, notes)) == 4
    assert notes == [
        f"{path}, line 2: 'catgory' is not understood (did you mean 'category'?); 2 have it",
        f"{path}, line 3: 'images' is not understood",
        f"{path}, line 4: 'tools' is not understood and left out of the logged request",
    ]
    notes.clear()
    read_prompts(written(tmp_path, {"prompt": "a", **{f"odd {n}": n for n in range(9)}}), notes)
    assert len(notes) == 6
    assert notes[-1].endswith("4 more are not understood: odd 5, odd 6, odd 7, odd 8")


def test_every_command_is_told_what_is_left_out(tmp_path: Path) -> None:
    lines = [{"prompt": f"p{n}", "timestamp": n, "catgory": "x"} for n in range(30)]
    path = written(tmp_path, *lines)
    note = f"{path}, line 1: 'catgory' is not understood (did you mean 'category'?); 30 have it"
    for flag in ("--prompts", "--replay"):
        args = find_command("bench").parse(["http://a", flag, str(path)])
        [load] = plan_loads(args, lambda slots: 0)
        assert list(load.notes) == [note]
    args = find_command("compare").parse(["http://a", "http://b", "--prompts", str(path)])
    assert prompts_from(args)[1] == [note]
    target = str(tiny_model(tmp_path / "target", "llama"))
    args = find_command("tune").parse(
        ["--prompts", str(path), "--target", target, "--methods", "ngram"]
    )
    assert note in plan_run(RunSettings.from_options(args)).context.warnings


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
