"""Flags as data, and the words that they become."""

from __future__ import annotations

from outdraft.backends.flags import first_given, json_flag, make_flags, user_flags


def test_flags_keep_their_values() -> None:
    words = ("--a", "1", "--switch", "-m", "x.gguf", "--min", "-1")
    flags = user_flags(words)
    assert [flag.words for flag in flags] == [
        ("--a", "1"), ("--switch",), ("-m", "x.gguf"), ("--min", "-1"),
    ]  # fmt: skip
    assert user_flags(("--a=b=c", "--b"))[0].words == ("--a", "b=c")
    assert not any(flag.reason for flag in flags), "a user's own flags need none"


def test_what_has_no_value_is_left_out() -> None:
    flags = make_flags({"--port": 1, "--dtype": None, "--metrics": False, "--enable-metrics": True})
    assert [flag.words for flag in flags] == [("--port", "1"), ("--enable-metrics",)]
    assert make_flags({"--port": 0})[0].words == ("--port", "0")


def test_a_flag_has_the_common_reason_or_its_own() -> None:
    common, own = make_flags({"--port": 1, "-c": (2, "why")})
    assert "/health" in common.reason
    assert own.words == ("-c", "2")
    assert own.reason == "why"
    assert make_flags({"-c": (None, "why")}) == []


def test_settings_in_one_value_have_their_own_reasons() -> None:
    flag = json_flag("--speculative-config", {"k": 4, "own": "x"})
    assert flag.reason == "how to speculate"
    assert flag.words == ("--speculative-config", '{"k": 4, "own": "x"}')
    assert flag.details == ("k 4: tokens drafted in a round", 'own "x"')


def test_a_users_flag_is_seen_in_both_forms() -> None:
    assert first_given(("--x=1", "2"), ("--y", "--x")) == "--x"
    assert first_given(("--xy",), ("--x",)) is None
