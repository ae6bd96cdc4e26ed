"""The commands that README.md, docs/ and --help tell people to type."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from outdraft.cli.command import HELP

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
PAGES = (ROOT / "README.md", *sorted(DOCS.rglob("*.md")))
SHELLS = ("", "sh", "bash")
_ENDS = ("|", "||", "&", "&&", ";", "<", ">")  # of a command's own words
_PLACEHOLDERS = ("…", "...", "URL", "DIR", "FILE", "MODEL", "SPEC@", "BASELINE", "TARGET")


@dataclass(frozen=True, slots=True)
class Written:
    page: str
    words: tuple[str, ...]  # after `outdraft`

    def __str__(self) -> str:
        return f"{self.page}: {shlex.join(self.words)}"


def blocks(page: Path, languages: tuple[str, ...]) -> list[str]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    return [block for name, block in fenced if name in languages]


def name_of(page: Path) -> str:
    """`README.md`, else its path in docs/."""
    return str(page.relative_to(DOCS)) if page.is_relative_to(DOCS) else page.name


def in_blocks() -> list[Written]:
    """Those in blocks of their own: to be typed as they are."""
    return [
        Written(name_of(page), words)
        for page in PAGES
        for block in blocks(page, SHELLS)
        for words in commands_in(block)
    ]


def in_sentences() -> list[Written]:
    """Those in the middle of a text, without those that only name a command or hold its usage."""
    found = []
    for page in PAGES:
        text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        for line in re.findall(r"`(outdraft [^`\n]*)`", text):
            if not any(each in line for each in _PLACEHOLDERS):
                found += [Written(name_of(page), words) for words in commands_in(line) if words[1:]]
    return found


def in_help() -> list[Written]:
    return [
        Written(f"outdraft {name} --help", words)
        for name, texts in HELP.items()
        for words in commands_in(texts["examples"])
    ]


def commands_in(block: str) -> Iterator[tuple[str, ...]]:
    """The words of each call of outdraft: pipes, redirections and schedules of cron are cut off."""
    for line in block.replace("\\\n", " ").splitlines():
        reader = shlex.shlex(line, posix=True, punctuation_chars=True)
        reader.whitespace_split = True
        reader.commenters = "#"
        try:
            words = list(reader)
        except ValueError:  # the tree of files in docs/design.md
            continue
        while "outdraft" in words:
            begin = words.index("outdraft") + 1
            end = next((i for i, word in enumerate(words) if i >= begin and word in _ENDS), None)
            is_call = begin == 1 or words[begin - 2] in _ENDS or words[0] == "*/30"
            if is_call and words[begin:end]:
                yield tuple(words[begin:end])
            words = words[begin:]
