"""Real SGLang: the whole contract. On a CPU it needs kernels that are in no package."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from outdraft.backends.backend import Backend, Serving
from outdraft.backends.engine_python import python_of
from outdraft.backends.lookup import backend_named
from outdraft.backends.process import EngineProcess, start
from outdraft.backends.proof import REPEATING
from outdraft.observe import parse_page
from outdraft.speculation import OFF
from outdraft.testing.backend_contract import RunningContract, page_of, stream, wait_for_death
from outdraft.testing.fake_answers import FakeMetrics
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
        return backend_named("sglang")

    def make_serving(self, folder: Path) -> Serving:
        return small_serving(smollm2_folder())

    def broken_serving(self, folder: Path) -> Serving:
        (folder / "broken").mkdir()
        (folder / "broken" / "config.json").write_text("{}")
        return small_serving(folder / "broken")

    def test_the_stand_in_has_no_metric_of_its_own(self, engine: EngineProcess) -> None:
        """Behind requests that speculated: counters come with their first value."""
        stream(engine, REPEATING, max_tokens=8)
        fake = FakeMetrics(k=3, kv_slots=8)
        fake.acceptance.record(3, 1)
        assert parse_page(fake.render("sglang").decode()).keys() <= page_of(engine).keys()


def test_a_dead_scheduler_is_noticed_too(tmp_path: Path) -> None:
    """The process that computes is not the one that was started."""
    serving, log = small_serving(smollm2_folder()), tmp_path / "engine.log"
    with start(backend_named("sglang"), serving, OFF, log=log, limit_s=LIMIT_S) as engine:
        began = time.monotonic()
        os.kill(scheduler_of(engine), signal.SIGKILL)
        reason = wait_for_death(engine)
        print(f"noticed after {time.monotonic() - began:.2f} s: {reason}")
        assert str(log) in reason


def scheduler_of(engine: EngineProcess) -> int:
    titles = {pid: Path(f"/proc/{pid}/cmdline").read_text() for pid in engine.processes()}
    return next(pid for pid, title in titles.items() if title.startswith("sglang::scheduler"))
