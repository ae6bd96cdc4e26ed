from __future__ import annotations

import sys
from pathlib import Path

import pytest

from outdraft.backends.help_text import choices_in, help_of, options_in
from outdraft.errors import BackendError

HELP = """\
usage: engine [options]

-t,    --threads N                      number of threads; see --threads-batch
-kvu,  --kv-unified, -no-kvu, --no-kv-unified
                                        one pool (default: -1)
--spec-type none,draft-simple,ngram-simple
                                        kinds of speculation
-sm,   --split-mode {none,layer,row}    how to split
  --port PORT, -p PORT  where to listen
--draft, --draft-max N                  the argument has been removed. use
                                        --spec-draft-n-max
--draft-min N                           minimum
"""


def test_options_are_those_that_a_help_describes() -> None:
    assert options_in(HELP) == {
        *("-t", "--threads", "-kvu", "--kv-unified", "-no-kvu", "--no-kv-unified"),
        *("--spec-type", "-sm", "--split-mode", "--port", "-p", "--draft-min"),
    }


def test_choices_are_read_in_every_form() -> None:
    assert choices_in(HELP, "--spec-type") == ("none", "draft-simple", "ngram-simple")
    assert choices_in(HELP, "--split-mode") == ("none", "layer", "row")
    assert choices_in("--spec-type [none|ngram-cache]  kinds", "--spec-type") == (
        "none",
        "ngram-cache",
    )
    assert choices_in(HELP, "--port") == ()


def test_a_command_that_fails_is_quoted(tmp_path: Path) -> None:
    command = (sys.executable, "-c", "import sys; sys.exit('it is broken')")
    with pytest.raises(BackendError, match="it is broken"):
        help_of(command, "--help")
    with pytest.raises(BackendError, match="No such file"):
        help_of((str(tmp_path / "ghost"),), "--help")
