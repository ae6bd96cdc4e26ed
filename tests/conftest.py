"""Nothing global is changed here but how threads wait, what Control-C does and that nobody waits
for the disk: the `model` mark uses the user's own model cache, as a user would, and every other
test writes under its own tmp_path."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

# Before torch is loaded: threads that wait for each other by spinning stand in each other's way
# when several tests run at once.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# And in what tests start: every worker of the suite has a core, not two.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch
from hypothesis import settings

from outdraft.catalog import resolve

# The fast suite tries the same examples every time: what passed here passes on every machine.
# `make test-slow` looks for new ones.
settings.register_profile("same_examples", derandomize=True, deadline=None)
settings.register_profile("new_examples", print_blob=True, deadline=None)
settings.load_profile("same_examples")

# A suite started in the background inherits a Control-C that is ignored, and so would every
# command it starts; tests about Control-C mean the usual one.
signal.signal(signal.SIGINT, signal.default_int_handler)


# Rooms whose tests wait for servers and processes
_IN_REAL_TIME = {"backends", "catalog", "cli", "docs", "engines", "loadgen", "measure",
                 "observe", "server", "testing", "tune"}  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test in real time may meet a machine that is busy for a moment: it is tried again. Where
    it says that texts differ it is not: no machine is so busy."""
    for item in items:
        if _IN_REAL_TIME.intersection(item.path.parts):
            item.add_marker(
                pytest.mark.flaky(reruns=2, reruns_delay=2, rerun_except="texts differ")
            )


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """The real default model, fetched once into the user's cache."""
    return resolve("smollm2-135m").path


@pytest.fixture(autouse=True, scope="session")
def no_power_cut() -> Iterator[None]:
    """Whether a file is on the disk shows only when the power goes; a journal waits milliseconds
    for it with every line. Commands that tests start wait as always."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: None)
        yield


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """Tiny models gain nothing from threads, and threads that wait for each other on a busy
    machine make a suite ten times slower. Tests about threads set their own number."""
    torch.set_num_threads(1)
