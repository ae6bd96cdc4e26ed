"""The claim, on the real model: 210 prompts × 128 tokens, not one text differs."""

from __future__ import annotations

import pytest
from benchmarks.exactness import METHODS, TASKS, TOPICS, first_divergence, measure, table


def test_first_divergence() -> None:
    assert first_divergence([1, 2, 3], [1, 2, 3]) is None
    assert first_divergence([1, 2, 3], [1, 5, 3]) == 1
    assert first_divergence([1, 2], [1, 2, 3]) == 2


@pytest.mark.slow
@pytest.mark.model
def test_no_text_differs_on_the_real_model(capsys: pytest.CaptureFixture[str]) -> None:
    count = len(TOPICS) * len(TASKS)
    assert count >= 200

    def say(line: str) -> None:
        with capsys.disabled():
            print(line, flush=True)

    off, *arms = measure(count, 128, say=say)
    say(table([off, *arms]))
    assert tuple(arm.method for arm in arms) == METHODS
    for arm in arms:
        assert 0 < arm.accepted < arm.proposed  # it did speculate, and was wrong at times
        assert arm.first_divergences == []
