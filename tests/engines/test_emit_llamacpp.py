"""Every configuration emitted for llama.cpp is accepted by llama.cpp's own parser."""

from __future__ import annotations

import subprocess

import pytest

from outdraft.backends.llamacpp import installation as llamacpp_installation
from outdraft.emit import FORMS, engine_config, write_form
from outdraft.errors import OptionError
from tests.emit.reading import argv_of, servings, speculations
from tests.engines.places import llama_server

pytestmark = pytest.mark.engines


def test_every_form_of_every_speculation_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    program = str(llama_server())
    monkeypatch.setenv(llamacpp_installation.VARIABLE, program)
    # The installation's own flags, and those of the table where this is its version.
    newest = llamacpp_installation.TABLE.installation()
    is_newest = llamacpp_installation.detect().options >= newest.options
    versions = (None, "newest") if is_newest else (None,)
    commands: set[tuple[str, ...]] = set()
    for serving, hosts in servings("/models/target.gguf"):
        if hosts > 1 or serving.dtype:
            continue
        for speculation in speculations("/models/draft.gguf", "/models/head.gguf"):
            for version in versions:
                try:
                    config = engine_config("llamacpp", speculation, serving, version=version)
                except OptionError:
                    continue  # llama.cpp has no such thing
                commands |= {tuple(argv_of(write_form(config, f), f)) for f in FORMS}
    assert len(commands) > 8
    for argv in commands:
        assert argv[0] == "llama-server"
        # --version ends it when all flags before were understood.
        done = subprocess.run([program, *argv[1:], "--version"], capture_output=True, text=True)
        assert done.returncode == 0, (argv, done.stderr)
