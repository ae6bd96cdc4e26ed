"""The build backend: that of setuptools, and a C compiler from PyPI where the machine has none."""

from __future__ import annotations

from typing import Any

from compile_native import compilers, takes_sources
from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    build_sdist,
    build_wheel,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

# Where there is no wheel of it, asking for it would stop the installation.
ZIG = (
    "ziglang>=0.13; (sys_platform == 'linux' or sys_platform == 'darwin') and "
    "(platform_machine == 'x86_64' or platform_machine == 'aarch64' or platform_machine == 'arm64')"
)


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    return [*build_meta.get_requires_for_build_wheel(config_settings), *_compiler()]


def get_requires_for_build_editable(config_settings: Any = None) -> list[str]:
    return [*build_meta.get_requires_for_build_editable(config_settings), *_compiler()]


def _compiler() -> list[str]:
    return [] if any(takes_sources(compiler) for compiler in compilers()) else [ZIG]
