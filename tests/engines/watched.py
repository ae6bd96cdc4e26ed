"""`outdraft watch` and `outdraft bench` on the same engine, in the same seconds.

Requests come at the times of a trace: that load has no requests before and after those that count,
so both see the same ones.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, cycle
from pathlib import Path
from typing import Any

import pytest

from outdraft.acceptance import Acceptance
from outdraft.cli.main import main
from outdraft.observe import read_acceptance
from outdraft.records import Record, trial_from_json

_LIMIT_S = 60.0
_COUNTED_S = 0.5  # until a server's counters have the end of the last answer

_BURSTS = (1, 2, 3, 10)
_PROMPTS = (
    "Count from one to twenty, then again.",
    "Write one line about the sea.",
    "Repeat: red blue green red blue green red blue green.",
    "Name three birds and say where each of them lives in winter.",
)


@dataclass(frozen=True)
class Both:
    """What the watch says of a window that holds all requests of the bench."""

    view: dict[str, Any]  # of its JSON: the only replica
    records: tuple[Record, ...]
    counters: Acceptance  # the server's, as bench read them before and after

    @property
    def window(self) -> dict[str, Any]:
        found: dict[str, Any] = self.view["window"]
        return found

    @property
    def num_tokens(self) -> int:
        return sum(each.completion_tokens or 0 for each in self.records)

    @property
    def told(self) -> Acceptance:
        """With the answers."""
        return Acceptance.total(each.acceptance for each in self.records)

    @property
    def decode_s(self) -> float:
        """From first to last tokens, of all texts."""
        return sum((each.last_ns or 0) - (each.first_ns or 0) for each in self.records) / 1e9

    def seconds(self, name: str) -> list[float]:
        """TTFT, TPOT or e2e of all that have one."""
        times = [getattr(each, f"{name}_ns") for each in self.records]
        return [ns / 1e9 for ns in times if ns is not None]


def watch_and_bench(
    url: str, folder: Path, lengths: Sequence[int], *, apart_s: float, interval: str = "1s"
) -> Both:
    """Answers of these lengths, in bursts of various sizes every `apart_s` seconds."""
    trace, out = folder / "trace.jsonl", folder / "bench.json"
    bursts = chain.from_iterable([at] * size for at, size in enumerate(cycle(_BURSTS)))
    lines = [
        {
            "timestamp": at * apart_s,
            "prompt": f"{_PROMPTS[number % len(_PROMPTS)]} ({number})",
            "expected_tokens": length,
        }
        for number, (length, at) in enumerate(zip(lengths, bursts, strict=False))
    ]
    trace.write_text("".join(f"{json.dumps(each)}\n" for each in lines))
    with _watching(url, interval, folder / "watch.txt") as end_of_watch:
        start = time.time()
        code = main(["bench", url, "--replay", str(trace), "--warmup", "0", "--out", str(out)])
        time.sleep(_COUNTED_S)
        end = time.time()
        snapshot = end_of_watch()
    assert code in (0, 1), "on a busy machine it may be invalid"
    trial = trial_from_json(json.loads(out.read_text()))
    assert [each.error for each in trial.records] == [None] * len(lengths)
    [view] = snapshot["replicas"]
    assert snapshot["fleet"]["window"] == view["window"]
    assert view["window"]["start"] < start < end < view["window"]["end"]
    counters = read_acceptance(trial.server_metrics)
    assert counters is not None
    return Both(view, trial.records, counters)


def check_acceptance(both: Both) -> None:
    """Exactly what came with the answers, and what bench read from the same page."""
    window, told, counters = both.window, both.told, both.counters
    print(f"acceptance rate: watch {window['acceptance_rate']:.4f}, bench {told.rate:.4f}")
    print(
        f"acceptance length: watch {window['acceptance_length']:.3f}, bench {counters.length:.3f}"
    )
    assert counters.num_accepted_tokens > 0
    assert told.num_draft_tokens == counters.num_draft_tokens
    assert told.num_accepted_tokens == counters.num_accepted_tokens
    assert window["acceptance_rate"] == pytest.approx(told.rate)
    assert 0 < window["acceptance_rate"] < 1
    assert window["acceptance_length"] == pytest.approx(counters.length)
    assert window["mean_k"] == pytest.approx(counters.mean_k)
    assert window["acceptance_by_position"] == pytest.approx(list(counters.survival_per_position))
    assert sum(counters.accepted_per_position) == counters.num_accepted_tokens


def check_rates(both: Both) -> None:
    """All tokens, and no others, over the time from the first look to the last. A busy server may
    have missed some looks between."""
    window = both.window
    assert window["num_restarts"] == 0
    assert window["num_tokens"] == both.num_tokens
    passed_s = window["end"] - window["start"]
    print(f"tokens per second: watch {window['tokens_per_s']:.2f}, "
          f"bench {both.num_tokens} in {passed_s:.2f} s")  # fmt: skip
    assert 0 < window["seconds"] <= passed_s
    assert window["tokens_per_s"] == pytest.approx(both.num_tokens / passed_s)


@contextmanager
def _watching(url: str, interval: str, log: Path) -> Iterator[Callable[[], dict[str, Any]]]:
    """When it has looked once. What it yields ends the watch and gives its JSON."""
    command = [sys.executable, "-m", "outdraft", "watch", url, "--interval", interval,
               "--window", "10m", "--for", "10m", "--json"]  # fmt: skip
    with (
        log.open("w") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):

        def end() -> dict[str, Any]:
            process.send_signal(signal.SIGTERM)
            said, _ = process.communicate(timeout=_LIMIT_S)
            found: dict[str, Any] = json.loads(said)
            return found

        try:
            until = time.monotonic() + _LIMIT_S
            while "1 replica ·" not in log.read_text():  # not "1 replica, 0 up ·"
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < until
                time.sleep(0.02)
            yield end
        finally:
            process.kill()
