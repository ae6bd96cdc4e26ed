"""The claim, on the real model: 270 prompts, up to 128 tokens each, not one text differs."""

from __future__ import annotations

import pytest
from benchmarks.exactness import METHODS, PROMPTS, first_divergence, measure, table


def test_first_divergence() -> None:
    assert first_divergence([1, 2, 3], [1, 2, 3]) is None
    assert first_divergence([1, 2, 3], [1, 5, 3]) == 1
    assert first_divergence([1, 2], [1, 2, 3]) == 2


@pytest.mark.slow
@pytest.mark.model
def test_no_text_differs_on_the_real_model(capsys: pytest.CaptureFixture[str]) -> None:
    def say(line: str) -> None:
        with capsys.disabled():
            print(line, flush=True)

    off, *arms = measure(PROMPTS, 128, say=say)
    say(table([off, *arms]))
    assert off.tokens >= 200 * 128
    assert tuple(arm.method for arm in arms) == METHODS
    for arm in arms:
        assert 0 < arm.accepted < arm.proposed  # it did speculate, and was wrong at times
        assert arm.first_divergences == []
