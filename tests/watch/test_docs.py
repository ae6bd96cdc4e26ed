"""docs/watching.md says what the code says, and what it tells people to type can be typed.

`python -m tests.watch.test_docs` writes the table of alarms anew.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from outdraft.cli.main import find_command
from outdraft.watch.alarms.words import KINDS
from outdraft.watch.findings import Action, Source
from outdraft.watch.settings import WatchSettings
from outdraft.watch.words import ago

FILE = Path(__file__).parent.parent.parent / "docs" / "watching.md"
TEXT = FILE.read_text()
START, END = "<!-- alarms -->\n", "\n<!-- end of alarms -->"


def alarm_table() -> str:
    """What belongs between the two comments of the page."""
    cells = [
        (f"**{kind.title}**", ago(kind.delay_s), kind.needs, f"{kind.advice}: `{kind.command}`")
        for kind in KINDS.values()
    ]
    escaped = [[cell.replace("|", r"\|") for cell in each] for each in cells]
    rows = [f"| {' | '.join(each)} |" for each in escaped]
    return "\n".join(["| alarm | within | needs | next |", "|---|---|---|---|", *rows])


def test_alarms_are_those_of_the_code() -> None:
    assert TEXT.partition(START)[2].partition(END)[0] == alarm_table()


def commands(name: str) -> list[str]:
    blocks = re.findall(r"^```\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    return [line for line in lines if line.startswith(f"outdraft {name} ")]


@pytest.mark.parametrize("line", commands("watch"))
def test_a_command_can_be_typed(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tune-out").mkdir()
    args = find_command("watch").parse(shlex.split(line)[2:])
    if args.write_boards is None:
        WatchSettings.from_options(args)


@pytest.mark.parametrize("kind", KINDS)
def test_an_alarm_names_a_command_that_exists(kind: str) -> None:
    command = KINDS[kind].alarm("a:8000", 1.0, "figures", model="m", engine="vllm").command
    if command.startswith("outdraft "):
        _, name, *words = shlex.split(command)
        if "--help" not in words:
            find_command(name).parse(words)


def test_every_source_and_action_is_explained() -> None:
    for source in Source:
        assert f"(`{source}`)" in TEXT
        assert source.words.removeprefix("by ") in TEXT
    for action in Action:
        assert f"| {action}" in TEXT


def test_every_option_is_named() -> None:
    left = [
        option.flag
        for option in find_command("watch").options
        if option.flag.startswith("--") and option.flag not in TEXT
    ]
    assert left == ["--interval"]


if __name__ == "__main__":
    before, after = TEXT.split(START)[0], TEXT.split(END)[1]
    FILE.write_text(f"{before}{START}{alarm_table()}{END}{after}")
