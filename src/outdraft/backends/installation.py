"""What is installed of an engine, and what is known of versions that are not.

An engine's own parser says which options it has. Without an installation a table says it, which
was read out of the published wheels; an option counts from the first wheel in which it was seen.
"""

from __future__ import annotations

import os
import re
import shutil
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from outdraft.errors import BackendError, OptionError


@dataclass(frozen=True, slots=True)
class Installation:
    version: str
    options: frozenset[str]  # flags its parser knows, e.g. "--speculative-config"
    command: tuple[str, ...] = ()  # what starts a server
    is_here: bool = True  # False: the command is for another machine
    device: str = "cuda"  # cuda, hip or cpu
    choices: Mapping[str, Sequence[str]] = field(default_factory=dict)  # values of a flag
    missing: frozenset[str] = frozenset()  # optional packages that are not there
    notes: tuple[str, ...] = ()
    library: str = ""  # what it computes with, as far as its version does not say

    @property
    def full_version(self) -> str:
        return f"{self.version}, {self.library}" if self.library else self.version

    @property
    def numbers(self) -> tuple[int, ...]:
        return version_numbers(self.version)

    @property
    def is_cpu(self) -> bool:
        return self.device == "cpu"

    def has(self, option: str) -> bool:
        return option in self.options

    def first_of(self, *names: str) -> str:
        """The first of the names that this version has; empty where it has none."""
        return next((name for name in names if name in self.options), "")


@dataclass(frozen=True, slots=True)
class VersionTable:
    """Which options an engine's versions have; read from its versions.toml."""

    title: str
    newest: str
    command: Sequence[str]
    since: Mapping[str, Sequence[str]]  # version → the options it added, oldest first
    choices: Mapping[str, Sequence[str]] = field(default_factory=dict)  # values of a flag

    @classmethod
    def beside(cls, module: str) -> VersionTable:
        path = Path(module).with_name("versions.toml")
        return cls(**tomllib.loads(path.read_text(encoding="utf-8")))

    def installation(self, version: str | None = None) -> Installation:
        """A version that need not be installed, by its options in the table; None: the newest.

        A table of one version ignores any other version, with a note.
        """
        notes: tuple[str, ...] = ()
        if version is not None and len(self.since) == 1:
            notes = (f"version {version} is ignored: only {self.newest} is known here",)
            version = None
        version = version or self.newest
        numbers, oldest = version_numbers(version), next(iter(self.since))
        if numbers < version_numbers(oldest):
            raise OptionError(
                f"{self.title} {version} is not known here, the oldest one is {oldest}; install it "
                "and leave the version out: then its own parser is asked"
            )
        if numbers > version_numbers(self.newest):
            notes = (f"{self.title} {version} is newer than the newest known here, {self.newest}",)
        options = [
            each for since in self.since if numbers >= version_numbers(since)
            for each in self.since[since]
        ]  # fmt: skip
        return Installation(
            version, frozenset(options), tuple(self.command), False, "cuda", self.choices,
            notes=notes,
        )  # fmt: skip


def version_numbers(version: str) -> tuple[int, ...]:
    """0.32.0+cpu → (0, 32, 0); 0.32 is 0.32.0"""
    matched = re.match(r"v?(\d+(?:\.\d+)*)", version)
    if matched is None:
        raise OptionError(f"{version!r} is no version; one looks like 0.32.0")
    parts = [int(part) for part in matched[1].split(".")]
    return tuple(parts + [0] * (3 - len(parts)))


def find_executable(variable: str, name: str, remedy: str) -> Path:
    """From $VARIABLE, else from the PATH; BackendError with the `remedy` where neither has it."""
    named = os.environ.get(variable)
    program = shutil.which(os.path.expanduser(named) if named else name)
    if program is not None:
        return Path(program)
    if named:
        raise BackendError(f"${variable} is {named}, which is no program that can be run")
    raise BackendError(f"{name} is not installed here; {remedy}, or set ${variable} to its program")
