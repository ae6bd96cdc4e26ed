from __future__ import annotations

import io

from rich.console import Console

from outdraft.acceptance import Acceptance
from outdraft.records import Record
from outdraft.report.live import live


def record(arm: str, tpot_ms: float, **fields: object) -> Record:
    values = {
        "prompt_id": "p", "category": "chat", "temperature": 0.0, "arm": arm, "block": 0,
        "index": 0, "scheduled_ns": 0, "sent_ns": 0, "first_ns": 30_000_000,
        "last_ns": 30_000_000 + int(10 * tpot_ms * 1e6), "completion_tokens": 11, **fields,
    }  # fmt: skip
    return Record(**values)  # type: ignore[arg-type]


def shown(records: list[Record], *, terminal: bool) -> str:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=terminal, width=100, _environ={"TERM": "xterm"})
    with live(len(records), "compare", console) as show:
        for each in records:
            show(each)
    return screen.getvalue()


def test_a_row_for_each_arm_with_its_median() -> None:
    counts = Acceptance(num_drafts=5, num_draft_tokens=20, num_accepted_tokens=15)
    records = [
        record("off", 20), record("off", 22), record("off", 24),
        record("on", 11, acceptance=counts),
        record("on", 0, last_ns=None, error="http 503"),
        record("on", 500, is_warmup=True),
    ]  # fmt: skip
    text = shown(records, terminal=True)
    rows = [line.split() for line in text.splitlines()]
    assert ["off", "3", "0", "30.0", "22.0", "-"] in rows
    assert ["on", "3", "1", "30.0", "11.0", "0.75"] in rows
    assert "6/6" in text


def test_nothing_where_there_is_no_terminal() -> None:
    assert shown([record("off", 20)], terminal=False) == ""
