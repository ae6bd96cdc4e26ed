from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from outdraft.cli.config_file import add_options_with_file, fill
from outdraft.cli.options import Option
from outdraft.errors import OptionError

OPTIONS = (
    Option("--target", "which", default="small"),
    Option("--max-tokens", "how many", default=64, type=int),
    Option("--concurrency", "loads", default="1,4"),
    Option("--draft", "drafts", repeats=True),
    Option("--quiet", "say less", is_switch=True),
)


def filled(folder: Path, text: str, *flags: str) -> argparse.Namespace:
    path = folder / "settings.toml"
    path.write_text(text)
    parser = argparse.ArgumentParser()
    add_options_with_file(parser, "all", OPTIONS)
    args = parser.parse_args(flags)
    fill(args, OPTIONS, str(path), "tune")
    return args


def test_flags_win_over_the_file_and_the_file_over_defaults(tmp_path: Path) -> None:
    text = 'target = "large"\nmax-tokens = 8\nconcurrency = [1, 16]\ndraft = "a"\nquiet = true\n'
    args = filled(tmp_path, text, "--target", "mine")
    assert (args.target, args.max_tokens, args.concurrency) == ("mine", 8, "1,16")
    assert (args.draft, args.quiet) == (["a"], True)
    args = filled(tmp_path, "")
    assert (args.target, args.max_tokens, args.draft, args.quiet) == ("small", 64, None, False)


def test_a_section_of_its_own(tmp_path: Path) -> None:
    text = "[serve]\nport = 1\n[tune]\nmax_tokens = 5\n"
    assert filled(tmp_path, text).max_tokens == 5


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("max_token = 5", "did you mean 'max_tokens'"),
        ('max_tokens = "many"', "max_tokens cannot be 'many'"),
        ("quiet = 1", "quiet is true or false, got 1"),
        ("target = {}", "target cannot be {}"),
        ("target = ", "is not TOML"),
        ("max_tokens = 5\n[tune]\n", "max_tokens stands before [tune]; move it into it"),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(OptionError) as caught:
        filled(tmp_path, text)
    assert said in str(caught.value)


def test_no_such_file() -> None:
    with pytest.raises(OptionError, match=r"cannot read nowhere\.toml"):
        fill(argparse.Namespace(), (), "nowhere.toml", "tune")
