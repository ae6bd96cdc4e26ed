"""Who is compared with whom."""

from __future__ import annotations

import pytest

from outdraft.watch.alarms import Past, Rows
from outdraft.watch.alarms.fellows import unlike_fellows
from tests.watch.histories import Course, generate, minute


@pytest.mark.parametrize(
    ("models", "found"),
    [(("m", "m", "m"), {"r2"}), (("m", "m", "n"), set()), ((None, None, None), set())],
)
def test_fellows_have_the_same_known_model(models: tuple[str | None, ...], found: set[str]) -> None:
    """The third takes three times as long for a token, as a larger model does."""
    course = Course(num_minutes=60, begins=720)
    course.pace[2] = 3.0
    day = generate(course, 0)
    pasts = {
        name: Past(Rows.of(growths), Rows.of(()), model=model)
        for (name, growths), model in zip(day.minutes.items(), models, strict=True)
    }
    assert set(unlike_fellows(pasts, minute(60))) == found


@pytest.mark.parametrize(
    ("methods", "found"),
    [
        (("eagle", "eagle", "eagle"), {"r2"}),
        (("eagle", "eagle", "ngram"), set()),
        ((None, None, None), {"r2"}),
        (("auto", "auto", "auto"), set()),
    ],
)
@pytest.mark.parametrize("is_slow", [False, True])
def test_fellows_have_the_same_method(
    methods: tuple[str | None, ...], found: set[str], is_slow: bool
) -> None:
    """Two of method auto may choose differently; one that is slower is odd all the same."""
    course = Course(num_minutes=60, begins=720)
    if is_slow:
        course.pace[2] = 3.0
        found = {"r2"} if len(set(methods)) == 1 else set()
    else:
        course.chance[2] *= 0.5
    day = generate(course, 0)
    pasts = {
        name: Past(
            Rows.of(growths),
            Rows.of(()),
            model="m",
            drafts_as_it_pays=method == "auto",
            method=method,
        )
        for (name, growths), method in zip(day.minutes.items(), methods, strict=True)
    }
    evidence = unlike_fellows(pasts, minute(60))
    words = "ms per token" if is_slow else "of draft tokens"
    assert {name for name, each in evidence.items() if words in each} == found


def test_fellows_have_the_same_engine() -> None:
    """Another engine may need as long for a token as it likes."""
    course = Course(num_minutes=60, begins=720, num_replicas=4)
    course.pace[3] = 3.0
    day = generate(course, 0)
    for engines, found in (
        (("vllm", "vllm", "vllm", "vllm"), {"r3"}),
        (("vllm", "vllm", "vllm", "llamacpp"), set()),
        (("sglang", "vllm", "vllm", "vllm"), {"r3"}),
        (("sglang", "sglang", "vllm", "vllm"), set()),
    ):
        pasts = {
            name: Past(Rows.of(growths), Rows.of(()), model="m", engine=engine)
            for (name, growths), engine in zip(day.minutes.items(), engines, strict=True)
        }
        assert set(unlike_fellows(pasts, minute(60))) == found
