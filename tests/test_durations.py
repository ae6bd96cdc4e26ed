from __future__ import annotations

import pytest

from outdraft.durations import parse_duration
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
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text, option="--budget") == pytest.approx(seconds)


def test_a_plain_number_has_the_unit_of_its_option() -> None:
    assert parse_duration("250", option="--slo", unit="ms") == pytest.approx(0.25)


@pytest.mark.parametrize(
    "text", ["", "soon", "0s", "-5m", "1d", "5 m", "1.2.3s", "1e999s", "nan", "inf"]
)
def test_anything_else_is_refused_with_the_value_and_an_example(text: str) -> None:
    with pytest.raises(OptionError, match=r"--budget .* is not a duration; write e\.g\. 90s"):
        parse_duration(text, option="--budget")
