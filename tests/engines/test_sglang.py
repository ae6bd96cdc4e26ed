"""Real SGLang: the whole contract. On a CPU it needs kernels that are in no package."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from outdraft.backends.backend import Backend, Serving
from outdraft.backends.engine_python import python_of
from outdraft.backends.process import EngineProcess, start
from outdraft.backends.sglang import Sglang
from outdraft.backends.speculated import REPEATING
from outdraft.metrics_page import parse
from outdraft.speculation import OFF
from outdraft.testing.backend_contract import RunningContract, page_of, stream
from outdraft.testing.fake_metrics import FakeMetrics
from tests.engines.places import sglang, smollm2_folder

pytestmark = pytest.mark.engines

LIMIT_S = 300.0  # 30 to 50 s on two cores, more when others work there too


@pytest.fixture(autouse=True, scope="module")
def _here() -> Iterator[None]:
    done = subprocess.run(
        [str(python_of(sglang())), "-c", "import sgl_kernel"],
        capture_output=True, text=True, timeout=120, cwd="/", check=False,
    )  # fmt: skip
    if done.returncode:
        pytest.skip("this SGLang has a parser but no kernels; see dev/engines/sglang.sh")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OUTDRAFT_SGLANG", str(sglang()))
        yield


def small_serving(target: Path) -> Serving:
    return Serving(
        target=str(target),
        served_name="smollm2",
        dtype="float32",
        max_model_len=2048,
        max_num_seqs=4,
        # The length of a draft is a gauge: left alone, it is 0 for the first 40 steps.
        extra=("--max-total-tokens", "4096", "--decode-log-interval", "8"),
    )


class TestSglang(RunningContract):
    limit_s = LIMIT_S
    methods = ("ngram",)  # on a CPU, draft models need attention kernels for AMX

    def make_backend(self) -> Backend:
        return Sglang()

    def make_serving(self, folder: Path) -> Serving:
        return small_serving(smollm2_folder())

    def broken_serving(self, folder: Path) -> Serving:
        (folder / "broken").mkdir()
        (folder / "broken" / "config.json").write_text("{}")
        return small_serving(folder / "broken")

    def test_the_stand_in_has_no_metric_of_its_own(self, engine: EngineProcess) -> None:
        """Behind requests that speculated: counters come with their first value."""
        stream(engine, REPEATING, max_tokens=8)
        fake = FakeMetrics(k=3, kv_slots=8, num_rounds=1)
        assert parse(fake.render_sglang().decode()).keys() <= page_of(engine).keys()


def test_a_dead_scheduler_is_noticed_too(tmp_path: Path) -> None:
    """The process that computes is not the one that was started."""
    serving, log = small_serving(smollm2_folder()), tmp_path / "engine.log"
    with start(Sglang(), serving, OFF, log=log, limit_s=LIMIT_S) as engine:
        noticed, reasons = threading.Event(), list[str]()

        def on_death(reason: str) -> None:
            reasons.append(reason)
            noticed.set()

        with engine.watched(on_death):
            began = time.monotonic()
            os.kill(scheduler_of(engine), signal.SIGKILL)
            assert noticed.wait(5.0), "nobody noticed"
            print(f"noticed after {time.monotonic() - began:.2f} s: {reasons[0]}")
        assert str(log) in reasons[0]


def scheduler_of(engine: EngineProcess) -> int:
    titles = {pid: Path(f"/proc/{pid}/cmdline").read_text() for pid in engine.processes()}
    return next(pid for pid, title in titles.items() if title.startswith("sglang::scheduler"))
