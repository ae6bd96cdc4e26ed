"""Nothing global is changed here but how threads wait and what Control-C does: the `model` mark
uses the user's own model cache, as a user would, and every other test writes under its own
tmp_path."""

from __future__ import annotations

import os
import signal
from pathlib import Path

# Before torch is loaded: threads that wait for each other by spinning stand in each other's way
# when several tests run at once.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# And in what tests start: every worker of the suite has a core, not two.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch

from outdraft.catalog import resolve

# A suite started in the background inherits a Control-C that is ignored, and so would every
# command it starts; tests about Control-C mean the usual one.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """The real default model, fetched once into the user's cache."""
    return resolve("smollm2-135m").path


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """Tiny models gain nothing from threads, and threads that wait for each other on a busy
    machine make a suite ten times slower. Tests about threads set their own number."""
    torch.set_num_threads(1)
