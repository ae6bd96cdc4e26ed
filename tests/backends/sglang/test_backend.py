"""SGLang's commands, for a version that need not be here."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from outdraft.backends.backend import Backend, Serving, Traffic
from outdraft.backends.checks import preflight
from outdraft.backends.installation import Installation
from outdraft.backends.lookup import backend_named
from outdraft.backends.process import start
from outdraft.backends.proof import REPEATING, speculation_mismatch
from outdraft.backends.sglang.backend import ADAPTIVE_FILE, Sglang
from outdraft.backends.sglang.flags import adaptive_config
from outdraft.backends.sglang.installation import TABLE
from outdraft.errors import BackendError, OptionError
from outdraft.speculation import OFF, Speculation
from outdraft.testing.backend_contract import BackendContract, RunningContract, page_of, stream

NEWEST = TABLE.installation()
HERE = replace(NEWEST, command=(sys.executable, *NEWEST.command[1:]), is_here=True)
TARGET = Serving("org/target")
HEAD = Speculation("eagle", draft="org/head", k=4)


def flags_of(
    speculation: Speculation, serving: Serving = TARGET, installation: Installation = NEWEST
) -> dict[str, str]:
    """Flags with their values; a switch has the next flag's place."""
    argv = Sglang(installation).launch(serving, speculation, 8000).argv
    return {
        word: after for word, after in zip(argv, (*argv[1:], ""), strict=True) if word[0] == "-"
    }


def notes_of(speculation: Speculation, serving: Serving = TARGET) -> str:
    return "\n".join(Sglang(NEWEST).launch(serving, speculation, 1).notes)


def test_layers_of_the_target_are_nextn() -> None:
    flags = flags_of(Speculation("mtp", k=3, rule="rejection"))
    assert flags["--speculative-algorithm"] == "NEXTN"
    assert flags["--speculative-num-steps"] == "3"
    assert flags["--speculative-num-draft-tokens"] == "4"
    assert flags["--speculative-eagle-topk"] == "1"
    assert "--speculative-use-rejection-sampling" in flags
    assert "--speculative-draft-model-path" not in flags, "it is the target"
    assert "its checkpoint must have them" in notes_of(Speculation("mtp", k=3))
    apart = flags_of(Speculation("mtp", k=3, draft="org/assistant"))
    assert apart["--speculative-draft-model-path"] == "org/assistant"
    by_load = flags_of(Speculation("mtp", k=3, schedule=((1, 8, 3), (9, 64, 0))))
    assert by_load["--speculative-adaptive-config"] == ADAPTIVE_FILE


def test_methods_it_lacks_name_who_has_them() -> None:
    for method, who in (("medusa", "vLLM has it"), ("suffix", "vLLM and outdraft have it")):
        with pytest.raises(OptionError, match=f"SGLang has no method '{method}'.*; {who}"):
            flags_of(Speculation(method, draft="org/heads"))


class TestKnownSglang(BackendContract):
    def make_backend(self) -> Backend:
        return Sglang(NEWEST)

    def make_serving(self, folder: Path) -> Serving:
        return TARGET


class TestRunningSglang(RunningContract):
    """With a stand-in for the engine; tests/engines has the real one."""

    methods = ("ngram", "draft_model", "eagle", "mtp")

    @pytest.fixture(autouse=True, scope="class")
    @staticmethod
    def _launch_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
        """`python -m sglang.launch_server` is the stand-in."""
        folder = tmp_path_factory.mktemp("site")
        (folder / "sglang").mkdir()
        program = "from tests.backends.fake_sglang import main\nmain()\n"
        (folder / "sglang" / "launch_server.py").write_text(program)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", os.pathsep.join([str(folder), *sys.path]))
            yield

    def make_backend(self) -> Backend:
        return Sglang(HERE)

    def make_serving(self, folder: Path) -> Serving:
        return self._serving(folder / "target", '{"model_type": "llama"}')

    def broken_serving(self, folder: Path) -> Serving:
        return self._serving(folder / "broken", "{}")

    def test_flags_that_are_ignored_are_found_out(self, tmp_path: Path) -> None:
        """The contract can fail: an engine that came up without speculation does not pass."""
        backend, serving = self.make_backend(), self.make_serving(tmp_path)
        with start(backend, serving, OFF, log=tmp_path / "engine.log") as engine:
            with pytest.raises(AssertionError):
                self.test_it_drafts_and_says_so(engine)
            before = page_of(engine)
            stream(engine, REPEATING, max_tokens=8)
            why = speculation_mismatch(backend, Speculation("ngram"), before, page_of(engine))
        assert why is not None
        assert "speculative algorithm" in why

    def _serving(self, folder: Path, config: str) -> Serving:
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(config)
        # The length of a draft is a gauge: left alone, it is 0 for the first 40 steps.
        extra = ("--decode-log-interval", "1")
        return Serving(str(folder), served_name="stand-in", extra=extra)


@pytest.mark.parametrize("speculation", [OFF, Speculation("ngram"), HEAD])
def test_the_number_of_requests_is_never_left_to_chance(speculation: Speculation) -> None:
    assert flags_of(speculation)["--max-running-requests"] == "256"
    assert flags_of(speculation, replace(TARGET, max_num_seqs=16))["--max-running-requests"] == "16"
    flags = Sglang(NEWEST).launch(TARGET, speculation, 1).flags
    [reason] = [flag.reason for flag in flags if flag.name == "--max-running-requests"]
    assert "48" in reason


def test_a_chain_of_k_drafts() -> None:
    for speculation, algorithm in (
        (HEAD, "EAGLE3"),
        (Speculation("draft_model", draft="org/draft", k=4), "STANDALONE"),
    ):
        flags = flags_of(speculation)
        assert flags["--speculative-algorithm"] == algorithm
        assert flags["--speculative-num-steps"] == "4"
        assert flags["--speculative-num-draft-tokens"] == "5"
        assert flags["--speculative-eagle-topk"] == "1"


def test_ngram_is_a_chain_too() -> None:
    flags = flags_of(Speculation("ngram", k=4))
    assert flags["--speculative-num-draft-tokens"] == "5"
    assert flags["--speculative-ngram-max-bfs-breadth"] == "1"
    assert "--speculative-ngram-max-trie-depth" not in flags
    deep = flags_of(Speculation("ngram", k=16, prompt_lookup_max=5))
    assert deep["--speculative-ngram-max-trie-depth"] == "21"
    assert "prompt_lookup_min" in notes_of(Speculation("ngram"))


def test_metrics_are_on() -> None:
    assert "--enable-metrics" in flags_of(OFF)


def test_a_schedule_is_for_heads() -> None:
    scheduled = replace(HEAD, schedule=((1, 8, 9), (9, 32, 2), (33, 64, 0)))
    flags = flags_of(scheduled)
    assert flags["--speculative-adaptive-config"] == ADAPTIVE_FILE
    bands = json.loads(adaptive_config(scheduled))
    assert {start: band["candidate_steps"] for start, band in bands.items()} == {
        "1": [4], "9": [2], "33": [0],
    }  # fmt: skip
    # SGLang refuses a number of steps that no band has.
    assert [int(flags["--speculative-num-steps"])] in [b["candidate_steps"] for b in bands.values()]
    with pytest.raises(OptionError, match="EAGLE"):
        flags_of(Speculation("ngram", schedule=((1, 2, 3),)))


def test_a_schedule_of_nothing_is_nothing() -> None:
    assert flags_of(replace(OFF, schedule=((1, 8, 2),))) == flags_of(OFF)


def test_steps_are_among_the_bands() -> None:
    lower = replace(HEAD, schedule=((1, 8, 2), (9, 64, 1)))
    assert flags_of(lower)["--speculative-num-steps"] == "2"


def test_the_schedules_file_comes_with_the_launch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTDRAFT_CACHE", str(tmp_path))
    scheduled = replace(HEAD, schedule=((1, 8, 4), (9, 64, 1)))
    launch = Sglang(HERE).launch(TARGET, scheduled, 1)
    [(path, text)] = launch.files.items()
    assert launch.argv[launch.argv.index("--speculative-adaptive-config") + 1] == path
    assert Path(path).is_relative_to(tmp_path)
    assert json.loads(text)["9"] == {"candidate_steps": [1]}


def test_rejection_is_for_heads() -> None:
    assert "--speculative-use-rejection-sampling" in flags_of(replace(HEAD, rule="rejection"))
    with pytest.raises(OptionError, match="coupled"):
        flags_of(Speculation("draft_model", draft="d", rule="rejection"))
    with pytest.raises(OptionError, match="newer"):
        flags_of(replace(HEAD, rule="rejection"), installation=TABLE.installation("0.5.12"))
    with pytest.raises(OptionError, match="threshold"):
        flags_of(replace(HEAD, rule="typical"))


def test_a_draft_does_not_take_its_targets_quantization() -> None:
    quantized = replace(TARGET, quantization="fp8")
    assert flags_of(HEAD, quantized)["--speculative-draft-model-quantization"] == "unquant"
    assert "--speculative-draft-model-quantization" not in flags_of(HEAD)
    with pytest.raises(OptionError, match="int8"):
        flags_of(replace(HEAD, quantization="int8"))


def test_devices() -> None:
    two = replace(TARGET, tensor_parallel_size=2)
    assert flags_of(HEAD, two)["--tp-size"] == "2"
    flags_of(replace(HEAD, draft_tensor_parallel_size=2), two)
    with pytest.raises(OptionError, match="2"):
        flags_of(replace(HEAD, draft_tensor_parallel_size=1), two)


def environment(device: str, *, is_here: bool = True, **changes: Any) -> dict[str, str]:
    backend = Sglang(replace(NEWEST, device=device, is_here=is_here))
    return dict(backend.launch(replace(TARGET, **changes), OFF, 1).env)


def test_a_cpu_is_asked_for() -> None:
    """Without it, SGLang on a machine without a GPU ends while it starts."""
    assert environment("cpu", threads=4)["SGLANG_USE_CPU_ENGINE"] == "1"
    assert environment("cpu", threads=4)["SGLANG_CPU_OMP_THREADS_BIND"] == "0-3"
    assert "SGLANG_USE_CPU_ENGINE" not in environment("cuda", threads=4)


def test_a_trial_does_not_wait_for_dumps_and_a_users_own_start_does() -> None:
    """SGLang sleeps 5 seconds before it ends itself: so long must no crash go unnoticed."""
    assert environment("cuda") == {
        "SGLANG_PYSPY_DUMP_BEFORE_CRASH": "0",
        "SGLANG_CUDA_COREDUMP_BEFORE_CRASH": "0",
    }
    assert environment("cuda", is_here=False) == {}


def warnings(speculation: Speculation, traffic: Traffic, **changes: Any) -> str:
    installation = replace(NEWEST, device=changes.pop("device", "cuda"))
    return "\n".join(preflight(Sglang(installation), Serving("x", **changes), speculation, traffic))


def test_what_is_known_to_disappoint() -> None:
    hot = Traffic(temperatures=(0.8,))
    assert warnings(HEAD, hot) == ""
    assert "likeliest" in warnings(HEAD, hot, device="cpu")
    assert "likeliest" in warnings(Speculation("ngram"), hot, device="hip")
    assert warnings(HEAD, hot, device="hip") == ""
    assert warnings(OFF, hot, device="cpu") == ""
    assert "wait" in warnings(OFF, Traffic(concurrency=300))
    assert "34814" in warnings(replace(HEAD, schedule=((1, 4, 2),)), Traffic())
    scheduled = replace(HEAD, schedule=((1, 4, 2),))
    assert "attention" in warnings(scheduled, Traffic(), extra=("--attn-dp-size", "2"))
    assert "pipeline" in warnings(HEAD, Traffic(), extra=("--pp-size=2",))
    assert "penalty" in warnings(HEAD, Traffic(fields=frozenset({"presence_penalty"})))


def test_nothing_installed_gives_the_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("OUTDRAFT_SGLANG", raising=False)
    with pytest.raises(BackendError, match="pip install sglang"):
        backend_named("sglang")
