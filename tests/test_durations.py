from __future__ import annotations

import pytest

from outdraft.durations import format_duration, parse_duration
from outdraft.errors import OptionError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("10m", 600),
        ("1.5h", 5400),
        ("200ms", 0.2),
        (" 8m ", 480),
        ("45", 45),
        (".5s", 0.5),
        ("1e3s", 1000),
        ("6m30s", 390),
        ("1h5m", 3900),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text, option="--budget") == pytest.approx(seconds)


def test_a_plain_number_has_the_unit_of_its_option() -> None:
    assert parse_duration("250", option="--slo", unit="ms") == pytest.approx(0.25)


@pytest.mark.parametrize(
    "text", ["", "soon", "0s", "-5m", "1d", "5 m", "m30s", "1m30", "1.2.3s", "1e999s", "nan", "inf"]
)
def test_anything_else_is_refused_with_the_value_and_an_example(text: str) -> None:
    with pytest.raises(OptionError, match=r"--budget .* is not a duration; write e\.g\. 90s"):
        parse_duration(text, option="--budget")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "0s"), (45.4, "45s"), (60, "1m"), (389.6, "6m30s"), (3600, "1h"), (3925, "1h5m")],
)
def test_durations_are_written_as_they_are_read(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
    if seconds >= 1:
        assert parse_duration(text, option="--budget") == pytest.approx(seconds, abs=30)
