from __future__ import annotations

from dataclasses import replace

import pytest

from outdraft.watch.findings import Action, Source
from outdraft.watch.snapshot import ReplicaState, ReplicaView
from outdraft.watch.words import (
    advice_texts,
    advice_words,
    ago,
    benefit_words,
    count_words,
    is_calm,
    lost_words,
    one_line,
)
from tests.watch.sample_snapshot import ALARM, GAIN, GAINS, KEEP, OFF, benefit, sample_snapshot


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(-1, "0 s"), (59.2, "59 s"), (60, "1 min"), (1500, "25 min"), (7200, "2 h"),
     (7560, "2 h 6 min"), (200_000, "2 days")],
)  # fmt: skip
def test_how_long(seconds: float, words: str) -> None:
    assert ago(seconds) == words


def test_benefits() -> None:
    assert benefit_words(GAIN) == "1.76x [1.69, 1.84]"
    assert benefit_words(benefit(1.2, None, None)) == "1.20x, no interval yet"
    of_little = replace(benefit(1.2, None, None), share=0.02)
    assert benefit_words(of_little) == "1.20x, in 2% of the time alone"
    assert benefit_words(replace(of_little, part="0")) == "1.20x, no interval yet"
    assert benefit_words(replace(benefit(1.2, 1.1, 1.3), share=0.8)) == "1.20x [1.10, 1.30]"
    assert benefit_words(None) == "unknown"
    assert len({each.words for each in Source}) == len(Source)


def test_what_is_lost() -> None:
    lost = "65,600 tokens, 7 min 48 s of GPU time and 0.33 in money an hour"
    assert lost_words(OFF) == f"Left as it is, it costs {lost}."
    assert lost_words(replace(OFF, action=Action.KEEP)) == f"Turning it off would cost {lost}."
    only_tokens = replace(OFF, lost_gpu_seconds_per_hour=None, lost_money_per_hour=None)
    assert lost_words(only_tokens) == "Left as it is, it costs 65,600 tokens an hour."
    assert lost_words(KEEP) == ""


def test_what_is_said_of_a_replica() -> None:
    up = ReplicaView("a", ReplicaState.UP, speculates=True)
    assert advice_words(up) == "not clear yet"
    assert advice_words(replace(up, speculates=False)) == "plain"
    assert advice_words(replace(up, advice=OFF)) == "TURN OFF"
    assert advice_words(replace(up, state=ReplicaState.DOWN)) == "no answer"
    assert [is_calm(each) for each in (up, replace(up, advice=KEEP))] == [True, True]
    assert not is_calm(replace(up, advice=OFF))
    assert not is_calm(replace(up, alarms=(ALARM,)))


def test_why_nothing_is_advised() -> None:
    busy = ReplicaView("a", ReplicaState.UP, speculates=True, window=GAINS)
    idle = replace(busy, window=replace(GAINS, num_tokens=0.0))
    assert advice_words(idle) == "no traffic"
    assert advice_words(replace(idle, advice=KEEP)) == "KEEP"
    early, unclear = benefit(1.2, None, None), benefit(1.1, 0.9, 1.3)
    for view, headline in (
        (idle, "No traffic"),
        (busy, "Nothing to compare with"),
        (replace(busy, speculates=False), "No speculation"),
        (replace(busy, benefit=early), "Too early to say"),
        (replace(busy, benefit=unclear), "Not clear yet"),
        (replace(busy, benefit=unclear, advice=OFF), "Turn speculation off"),
    ):
        assert advice_texts(view)["headline"] == headline


def test_a_text_from_outside_stays_in_its_line_and_has_no_escape_sequences() -> None:
    assert one_line("a\nb\x1b[31mc\u2028d") == "a b\N{REPLACEMENT CHARACTER}[31mc d"


def test_counts() -> None:
    assert count_words(sample_snapshot()) == "5 replicas, 3 up"
