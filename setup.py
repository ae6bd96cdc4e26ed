"""Compiles the engine's C library into the package. Everything else is in pyproject.toml."""

from __future__ import annotations

import platform
import sys
from pathlib import Path
from typing import ClassVar

from setuptools import Command, Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build import build

sys.path.insert(0, str(Path(__file__).resolve().parent / "dev"))

from compile_native import FOLDER, PACKAGE, ROOT, compile_into, levels


class BuildNative(Command):
    """Into the wheel, or beside the sources for an editable installation."""

    user_options: ClassVar = []
    editable_mode = False

    def initialize_options(self) -> None:
        self.build_lib: str | None = None

    def finalize_options(self) -> None:
        self.set_undefined_options("build", ("build_lib", "build_lib"))

    def run(self) -> None:
        compile_into(self._folder())

    def get_source_files(self) -> list[str]:
        return [str(file.relative_to(ROOT)) for file in sorted(FOLDER.glob("*.[ch]"))]

    def get_outputs(self) -> list[str]:
        return [str(self._folder() / f"step-{level}.so") for level in levels()]

    def get_output_mapping(self) -> dict[str, str]:
        return {}

    def _folder(self) -> Path:
        assert self.build_lib is not None
        return FOLDER if self.editable_mode else Path(self.build_lib) / PACKAGE


class Build(build):
    sub_commands: ClassVar = [*build.sub_commands, ("build_native", None)]


class BuildWheel(bdist_wheel):
    def get_tag(self) -> tuple[str, str, str]:
        """For every Python 3: the library is not linked with any. For one kind of machine."""
        system = super().get_tag()[2]
        return "py3", "none", system.replace("universal2", platform.machine())


class PlatformDistribution(Distribution):
    def has_ext_modules(self) -> bool:
        return True


setup(
    distclass=PlatformDistribution,
    ext_modules=[],
    cmdclass={"build": Build, "build_native": BuildNative, "bdist_wheel": BuildWheel},
)
