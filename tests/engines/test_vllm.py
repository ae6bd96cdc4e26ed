"""Real vLLM on the CPU: the whole contract, with every kind of speculation it can do there."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from outdraft.backends.backend import Backend, Serving
from outdraft.backends.lookup import backend_named
from outdraft.backends.process import start
from outdraft.observe import page_difference, read_acceptance
from outdraft.plan import PlanSettings, find_model, plan_memory
from outdraft.speculation import OFF, Speculation
from outdraft.testing.backend_contract import RunningContract, page_of
from tests.engines.places import smollm2_folder, vllm

pytestmark = pytest.mark.engines

LIMIT_S = 300.0  # 35 to 80 s on two cores, more when others work there too


@pytest.fixture(autouse=True, scope="module")
def _here() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OUTDRAFT_VLLM", str(vllm()))
        yield


def small_serving(target: Path) -> Serving:
    return Serving(
        target=str(target),
        served_name="smollm2",
        dtype="float32",
        max_model_len=2048,
        max_num_seqs=4,
        extra=("--enforce-eager",),  # compiled, it starts three times as slowly
    )


class TestVllm(RunningContract):
    limit_s = LIMIT_S
    methods = ("ngram", "draft_model")

    def make_backend(self) -> Backend:
        return backend_named("vllm")

    def make_serving(self, folder: Path) -> Serving:
        return small_serving(smollm2_folder())

    def speculation(self, method: str, serving: Serving) -> Speculation:
        draft = str(smollm2_folder(6)) if method in ("draft_model", "eagle") else None
        return Speculation(method=method, k=3, draft=draft)

    def broken_serving(self, folder: Path) -> Serving:
        (folder / "broken").mkdir()
        (folder / "broken" / "config.json").write_text("{}")
        return small_serving(folder / "broken")


@pytest.mark.parametrize("num_draft_layers", [0, 6])
def test_the_plan_gives_the_capacity_that_vllm_reports(
    tmp_path: Path, num_draft_layers: int
) -> None:
    target, size = smollm2_folder(), 1 << 30
    draft = smollm2_folder(num_draft_layers) if num_draft_layers else None
    speculation = OFF if draft is None else Speculation("draft_model", k=3, draft=str(draft))
    serving = replace(small_serving(target), kv_cache_bytes=size)
    log = tmp_path / "engine.log"
    with start(backend_named("vllm"), serving, speculation, log=log, limit_s=LIMIT_S):
        reported = re.search(r"KV cache size: ([\d,]+) tokens", log.read_text())
    assert reported is not None
    plan = plan_memory(
        find_model(str(target)),
        None if draft is None else find_model(str(draft)),
        None,
        PlanSettings(max_model_len=2048, kv_dtype="float32", kv_cache_bytes=size, k=3),
    )
    assert plan.room is not None
    told = int(reported[1].replace(",", ""))
    print(f"vLLM {told}, plan {plan.room.kv_tokens}")
    assert plan.room.kv_tokens == pytest.approx(told, rel=0.10)


def test_a_schedule_bench_and_compare(tmp_path: Path) -> None:
    """The commands a user types; one server after the other, two do not fit everywhere."""
    backend, serving = backend_named("vllm"), small_serving(smollm2_folder())
    scheduled = Speculation(method="ngram", k=5, schedule=((1, 1, 5), (2, 4, 2)))
    load = ("--category", "extraction", "--concurrency", "2", "--max-tokens", "32",
            "--requests", "8", "--temperature", "0.0", "--json")  # fmt: skip
    told = {}
    for name, speculation in (("off", OFF), ("on", scheduled)):
        log, out = tmp_path / f"{name}.log", tmp_path / f"{name}.json"
        with start(backend, serving, speculation, log=log, limit_s=LIMIT_S) as engine:
            before = page_of(engine)
            told[name] = outdraft("bench", engine.url, *load, "--out", str(out))
            counts = read_acceptance(page_difference(page_of(engine), before))
        assert told[name]["summary"]["num_errors"] == 0, told[name]["problems"]
    assert told["on"]["summary"]["acceptance"]["rate"] > 0
    assert counts is not None
    # Two requests at a time mostly: the second band's k, not the first one's.
    assert 0 < counts.num_draft_tokens < 5 * counts.num_drafts
    compare = outdraft("compare", str(tmp_path / "off.json"), str(tmp_path / "on.json"), "--json")
    assert compare["verdict"]["decision"] in ("SHIP", "DON'T SHIP", "INCONCLUSIVE")


def outdraft(*words: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "outdraft", *words],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found
