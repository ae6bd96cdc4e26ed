from __future__ import annotations

import shlex
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from outdraft.watch.findings import Notice
from outdraft.watch.snapshot import Snapshot
from outdraft.watch.terminal import copyable_command, snapshot_line, snapshot_text, watch_view
from tests.watch.sample_snapshot import ALARM, AT, REPLICAS, empty_snapshot, sample_snapshot


@pytest.mark.parametrize("width", [80, 100, 120, 160, 200])
@pytest.mark.parametrize("snapshot", [sample_snapshot(), empty_snapshot()])
def test_it_fits_and_no_word_is_broken(snapshot: Snapshot, width: int) -> None:
    lines = snapshot_text(snapshot, width).plain.split("\n")
    assert max(map(len, lines)) <= width
    words = {
        word for line in snapshot_text(snapshot, 500).plain.split("\n") for word in line.split()
    }
    for line in lines:
        for word in line.split():
            assert word in words or "…" in word, line


@pytest.mark.parametrize("width", [80, 200])
def test_what_it_says(width: int) -> None:
    text = snapshot_text(sample_snapshot(), width).plain
    for words in (
        "TURN OFF FOR 9 or more at a time (for 25 min)",
        "costs 65,600 tokens an hour",
        "1.21x [1.12, 1.31]", "0.43", "by plain replicas",
        "10.0.0.2:8000", "0.87x [0.82, 0.93]",
        "ALARM drafts are worthless", ALARM.evidence, f"next: {ALARM.advice}", f"$ {ALARM.command}",
        "no answer",
    ):  # fmt: skip
        assert words in text, words


def test_a_wide_terminal_has_more() -> None:
    title = "TPOT ms P50 / P99"
    assert title in snapshot_text(sample_snapshot(), 200).plain
    assert title not in snapshot_text(sample_snapshot(), 80).plain


def test_an_engine_without_histograms_has_a_mean() -> None:
    first, *others = REPLICAS
    assert first.window is not None
    llamacpp = replace(first, window=replace(first.window, times={}))
    snapshot = replace(sample_snapshot(), replicas=(llamacpp, *others))
    assert "mean 10.8" in snapshot_text(snapshot, 200).plain


def test_what_is_missing_is_said() -> None:
    now = sample_snapshot()
    unknown = replace(now, fleet=replace(now.fleet, advice=None, benefit=None))
    text = " ".join(snapshot_text(unknown, 80).plain.split())
    assert "not clear yet A net benefit needs plain replicas among the watched ones" in text


def test_a_high_terminal_has_more() -> None:
    high, low = (snapshot_text(sample_snapshot(), 120, height).plain for height in (40, 24))
    for words in (
        "ms P50 / P90 / P99: TTFT 100 / 200 / 410 · TPOT 10.5 / 16.0 / 33.0 · e2e 1,900 / 3,400 /",
        "accepted: by position 0.88 0.74 0.61 0.50 · median by temperature 0.80 at 0, 0.50 at 1+",
        "requests/s 1.50 · waiting 0.10 · preempted 0 · prefix hits 33\N{NO-BREAK SPACE}%",
    ):
        assert words in high
        assert words not in low


def test_who_needs_somebody_comes_first_and_a_low_window_shows_those() -> None:
    many = [replace(REPLICAS[0], name=f"http://10.0.1.{each}:8000") for each in range(50)]
    snapshot = replace(sample_snapshot(), replicas=(*many, *REPLICAS[:3]))
    lines = snapshot_text(snapshot, 100, height=24).plain.split("\n")
    assert len(lines) <= 24
    at = [number for number, line in enumerate(lines) if line.startswith("10.0.0.2:8000")]
    assert at == [number + 1 for number, line in enumerate(lines) if line.startswith("all ")]
    assert any(line.startswith("… and ") for line in lines)


def test_a_long_command_can_be_copied() -> None:
    command = "outdraft watch http://a --config 'a file with spaces.toml' " + "--dns x:1 " * 9
    lines = copyable_command(command, 60)
    assert lines.count("\\\n") >= 2
    assert shlex.split(lines.replace("\\\n", " ")) == shlex.split(command)
    assert max(map(len, lines.split("\n"))) <= 68


def test_a_pipe_gets_a_line_now_and_then_and_all_that_happens() -> None:
    output = StringIO()
    alarm = Notice(AT + 3, "alarm", "http://a", "drafts\x1b[2J are refused")
    with watch_view(Console(file=output, width=80)) as show:
        for second in range(12):
            notices = (alarm,) if second >= 3 else ()
            show(replace(sample_snapshot(), at=AT + second, notices=notices))
    lines = output.getvalue().splitlines()
    assert len(lines) == 4
    assert (
        sum("alarm · http://a: drafts\N{REPLACEMENT CHARACTER}[2J are" in each for each in lines)
        == 1
    )
    assert sum("acceptance 0.43 · 3.61 tokens/round · benefit 1.21x" in each for each in lines) == 3


def test_a_terminal_gets_the_view() -> None:
    output = StringIO()
    console = Console(file=output, width=100, height=40, force_terminal=True, color_system=None)
    with watch_view(console) as show:
        show(sample_snapshot())
    assert "ALARM drafts are worthless" in output.getvalue()


def test_a_line_before_anything_is_known() -> None:
    assert snapshot_line(empty_snapshot()).endswith("0 replicas · benefit unknown · new")
