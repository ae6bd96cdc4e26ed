from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import pytest

from outdraft.errors import OptionError
from outdraft.options import Option, add_options, fill_options, make_settings

OPTIONS = (
    Option("--target", "which", default="small"),
    Option("--max-tokens", "how many", default=64, type=int),
    Option("--concurrency", "loads", default="1,4"),
    Option("--draft", "drafts", repeats=True),
    Option("--quiet", "say less", bool),
    Option("--rule", "verification", default="coupled", choices=("coupled", "typical"),
           also=("--acceptance",)),
    Option("--runs", "how often", default=3, type=int, minimum=1),
)  # fmt: skip


def filled(folder: Path, text: str, *flags: str) -> argparse.Namespace:
    path = folder / "settings.toml"
    path.write_text(text)
    parser = argparse.ArgumentParser()
    add_options(parser, "all", OPTIONS)
    args = parser.parse_args(flags)
    fill_options(args, OPTIONS, str(path), "tune")
    return args


def test_flags_win_over_the_file_and_the_file_over_defaults(tmp_path: Path) -> None:
    text = 'target = "large"\nmax-tokens = 8\nconcurrency = [1, 16]\ndraft = "a"\nquiet = true\n'
    args = filled(tmp_path, text, "--target", "mine")
    assert (args.target, args.max_tokens, args.concurrency) == ("mine", 8, "1,16")
    assert (args.draft, args.quiet) == (["a"], True)
    assert filled(tmp_path, "quiet = false\n", "--quiet").quiet is True
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
        ('max_tokens = "many"', "takes a whole number"),
        ("runs = 0", "--runs must be at least 1, got 0"),
        ('rule = "typcal"', "did you mean 'typical'"),
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


def test_an_earlier_name_is_still_understood(tmp_path: Path) -> None:
    assert filled(tmp_path, "").rule == "coupled"
    assert filled(tmp_path, "", "--acceptance", "typical").rule == "typical"
    assert filled(tmp_path, 'acceptance = "typical"').rule == "typical"
    assert filled(tmp_path, 'acceptance = "typical"', "--rule", "coupled").rule == "coupled"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--max-tokens", "many"), "--max-tokens takes a whole number, got 'many'"),
        (("--runs", "0"), "--runs must be at least 1, got 0"),
        (("--rule", "typcal"), "unknown rule 'typcal' (did you mean 'typical'?)"),
    ],
)
def test_a_flag_is_checked_as_a_key_is(tmp_path: Path, flags: tuple[str, ...], said: str) -> None:
    with pytest.raises(OptionError) as caught:
        filled(tmp_path, "", *flags)
    assert str(caught.value).startswith(said)


def test_help_shows_the_default_and_no_earlier_name() -> None:
    parser = argparse.ArgumentParser()
    add_options(parser, "all", OPTIONS)
    shown = parser.format_help()
    assert "(default: coupled)" in shown
    assert "--rule" in shown
    assert "--acceptance" not in shown


def test_arguments_without_a_flag_that_may_be_several(tmp_path: Path) -> None:
    options = (Option("urls", "addresses", repeats=True), Option("--quiet", "say less", bool))
    for flags, text, expected in (
        (("a", "b"), "", ["a", "b"]),
        ((), 'urls = ["c"]', ["c"]),
        (("a",), 'urls = ["c"]', ["a"]),
        ((), "", None),
    ):
        path = tmp_path / "settings.toml"
        path.write_text(text)
        parser = argparse.ArgumentParser()
        add_options(parser, "all", options)
        args = parser.parse_args(flags)
        fill_options(args, options, str(path), "watch")
        assert args.urls == expected


def test_no_such_file() -> None:
    with pytest.raises(OptionError, match=r"cannot read nowhere\.toml"):
        fill_options(argparse.Namespace(), (), "nowhere.toml", "tune")


@dataclass(frozen=True)
class Settings:
    max_tokens: int
    target: str = "none"
    draft: str | None = "shipped"
    seed: int = 7


def test_settings_take_the_options_of_the_same_name(tmp_path: Path) -> None:
    args = filled(tmp_path, "", "--target", "mine", "--max-tokens", "8")
    assert make_settings(Settings, args) == Settings(8, "mine")
    assert make_settings(Settings, args, target="given", seed=1) == Settings(8, "given", seed=1)


def test_a_number_by_default_is_a_number(tmp_path: Path) -> None:
    parser = argparse.ArgumentParser()
    options = (Option("--share", "of all", default=0.5), Option("--count", "of each", default=2))
    add_options(parser, "numbers", options)
    args = parser.parse_args(["--share", "1", "--count", "3"])
    fill_options(args, options)
    assert (args.share, args.count) == (1.0, 3)
    assert isinstance(args.share, float)
    with pytest.raises(OptionError, match=r"--count takes a whole number, got '1\.5'"):
        fill_options(parser.parse_args(["--count", "1.5"]), options)


@pytest.mark.parametrize(
    ("flags", "text", "value"),
    [
        ((), "", (4,)),
        (("--loads", "1,2, 8"), "", (1, 2, 8)),
        ((), "loads = [1, 16]", (1, 16)),
        ((), "loads = 3", (3,)),
    ],
)
def test_several_values_with_commas(
    tmp_path: Path, flags: tuple[str, ...], text: str, value: tuple[int, ...]
) -> None:
    options = (Option("--loads", "at a time", default=4, minimum=1, is_list=True),)
    path = tmp_path / "settings.toml"
    path.write_text(text)
    parser = argparse.ArgumentParser()
    add_options(parser, "all", options)
    args = parser.parse_args(flags)
    fill_options(args, options, str(path), "bench")
    assert args.loads == value
    assert "(default: 4)" in parser.format_help()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1,1", "--loads '1,1' names one twice"),
        ("1,0", "--loads must be at least 1, got 0"),
        ("1,,2", "--loads takes a whole number, got ''"),
    ],
)
def test_each_of_several_values_is_checked(text: str, said: str) -> None:
    with pytest.raises(OptionError, match=f"^{said}$"):
        Option("--loads", "at a time", default=4, minimum=1, is_list=True).parse(text)
