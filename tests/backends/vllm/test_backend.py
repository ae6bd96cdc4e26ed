"""vLLM's commands, for a version that need not be here."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from outdraft.backends.backend import Backend, Serving
from outdraft.backends.installation import Installation
from outdraft.backends.lookup import backend_named
from outdraft.backends.vllm.backend import Vllm
from outdraft.backends.vllm.installation import KEY, SUFFIX_PACKAGE, TABLE
from outdraft.errors import BackendError, OptionError
from outdraft.speculation import OFF, Speculation
from outdraft.testing.backend_contract import BackendContract

NEWEST = TABLE.installation()
ON_CPU = replace(NEWEST, device="cpu", missing=frozenset({SUFFIX_PACKAGE}), is_here=True)
TARGET = Serving("org/target")


def launch(
    speculation: Speculation, serving: Serving = TARGET, installation: Installation = NEWEST
) -> Any:
    return Vllm(installation).launch(serving, speculation, 8000)


def config_of(
    speculation: Speculation, serving: Serving = TARGET, installation: Installation = NEWEST
) -> dict[str, Any]:
    argv = launch(speculation, serving, installation).argv
    config: dict[str, Any] = json.loads(argv[argv.index("--speculative-config") + 1])
    return config


class TestKnownVllm(BackendContract):
    def make_backend(self) -> Backend:
        return Vllm(NEWEST)

    def make_serving(self, folder: Path) -> Serving:
        return TARGET


class TestVllmOnCpu(BackendContract):
    def make_backend(self) -> Backend:
        return Vllm(ON_CPU)

    def make_serving(self, folder: Path) -> Serving:
        return TARGET


def test_off_is_a_server_without_any_speculative_config() -> None:
    assert "--speculative-config" not in launch(OFF).argv


def test_methods_become_vllms() -> None:
    ngram = config_of(Speculation("ngram", k=4, prompt_lookup_min=2, prompt_lookup_max=3))
    assert ngram == {
        "method": "ngram", "num_speculative_tokens": 4,
        "prompt_lookup_min": 2, "prompt_lookup_max": 3,
    }  # fmt: skip
    assert config_of(Speculation("eagle", draft="org/head"))["method"] == "eagle3"
    draft = config_of(Speculation("draft_model", draft="org/draft", rule="rejection"))
    assert draft["model"] == "org/draft"
    assert draft["draft_sample_method"] == "probabilistic"
    assert config_of(Speculation("draft_model", draft="org/draft"))["draft_sample_method"] == (
        "greedy"
    )


def test_layers_of_the_target_need_no_draft() -> None:
    speculation = Speculation("mtp", k=2, schedule=((1, 4, 2), (5, 64, 1)))
    assert config_of(speculation) == {
        "method": "mtp", "num_speculative_tokens": 2, "draft_sample_method": "greedy",
        "num_speculative_tokens_per_batch_size": [[1, 4, 2], [5, 64, 1]],
    }  # fmt: skip
    assert "its checkpoint must have them" in " ".join(launch(speculation).notes)
    sampled = config_of(Speculation("mtp", k=1, rule="rejection"))
    assert sampled["draft_sample_method"] == "probabilistic"
    apart = config_of(Speculation("mtp", k=1, draft="org/assistant"))
    assert apart["model"] == "org/assistant", "of targets whose layers are published apart"
    spread = config_of(Speculation("mtp", k=1), replace(TARGET, tensor_parallel_size=8))
    assert spread["draft_tensor_parallel_size"] == 8


def test_medusa_heads() -> None:
    config = config_of(Speculation("medusa", k=3, draft="org/heads"))
    assert (config["method"], config["model"]) == ("medusa", "org/heads")
    with pytest.raises(OptionError, match="has no rule 'rejection' for medusa; valid: coupled"):
        launch(Speculation("medusa", draft="org/heads", rule="rejection"))
    with pytest.raises(OptionError, match="no draft length by load for medusa"):
        launch(Speculation("medusa", draft="org/heads", schedule=((1, 4, 3),)))


def test_suffix_where_its_package_is() -> None:
    assert "suffix" in Vllm(NEWEST).capabilities().methods
    without = replace(NEWEST, missing=frozenset({SUFFIX_PACKAGE}))
    assert "suffix" not in Vllm(without).capabilities().methods
    with pytest.raises(OptionError, match=r"pip install arctic-inference==0\.1\.1 beside"):
        launch(Speculation("suffix"), installation=without)


def test_what_is_looked_up_has_one_rule() -> None:
    assert "draft_sample_method" not in config_of(Speculation("ngram", rule="rejection"))


def test_typical_names_what_is_nearest() -> None:
    with pytest.raises(OptionError, match="rejection"):
        launch(Speculation("ngram", rule="typical"))


def test_a_schedule_never_asks_for_more_than_k() -> None:
    speculation = Speculation("ngram", k=4, schedule=((1, 2, 9), (3, 8, 0)))
    key = "num_speculative_tokens_per_batch_size"
    assert config_of(speculation)[key] == [[1, 2, 4], [3, 8, 0]]
    forever = replace(speculation, schedule=((1, 2, 3), (3, 1 << 30, 0)))
    assert config_of(forever, replace(TARGET, max_num_seqs=64))[key][1] == [3, 64, 0]
    with pytest.raises(OptionError, match=r"0\.24"):
        launch(speculation, installation=TABLE.installation("0.23.0"))


@pytest.mark.parametrize(
    ("method", "size", "ok"),
    [("draft_model", 4, True), ("draft_model", 1, False), ("eagle", 1, True), ("eagle", 2, False)],
)
def test_devices_of_a_draft(method: str, size: int, ok: bool) -> None:
    speculation = Speculation(method, draft="org/draft", draft_tensor_parallel_size=size)
    serving = replace(TARGET, tensor_parallel_size=4)
    if ok:
        assert config_of(speculation, serving)["draft_tensor_parallel_size"] == size
    else:
        with pytest.raises(OptionError, match="4"):
            launch(speculation, serving)


def test_a_draft_follows_its_targets_devices() -> None:
    speculation = Speculation("draft_model", draft="org/draft")
    serving = replace(TARGET, tensor_parallel_size=4)
    assert config_of(speculation, serving)["draft_tensor_parallel_size"] == 4
    assert "draft_tensor_parallel_size" not in config_of(speculation)


def test_int8_is_fp8_and_says_so_but_not_on_a_cpu() -> None:
    speculation = Speculation("draft_model", draft="org/draft", quantization="int8")
    assert config_of(speculation)["quantization"] == "fp8"
    assert any("fp8" in note for note in launch(speculation).notes)
    with pytest.raises(OptionError, match="CPU"):
        launch(speculation, installation=ON_CPU)
    with pytest.raises(OptionError, match="AWQ"):
        launch(replace(speculation, quantization="int4"))


def test_a_catalog_name_is_its_hub_id_and_gguf_is_refused() -> None:
    argv = launch(OFF, Serving("smollm2-135m")).argv
    assert argv[2] == "HuggingFaceTB/SmolLM2-135M-Instruct"
    with pytest.raises(OptionError, match="GGUF"):
        launch(OFF, Serving("model.gguf"))


def test_metrics_flags_follow_the_version() -> None:
    speculation = Speculation("ngram")
    flag = "--per-request-spec-decode-metrics"
    assert flag in launch(speculation).argv
    assert flag not in launch(speculation, installation=TABLE.installation("0.28.0")).argv
    assert (
        "--enable-per-request-metrics"
        not in launch(OFF, installation=TABLE.installation("0.24.0")).argv
    )


def test_on_a_cpu_memory_and_threads_are_said() -> None:
    made = launch(OFF, replace(TARGET, threads=2), ON_CPU)
    assert made.argv[made.argv.index("--kv-cache-memory-bytes") + 1] == str(1 << 30)
    assert made.env["VLLM_CPU_OMP_THREADS_BIND"] == "0-1"
    own = launch(OFF, replace(TARGET, kv_cache_bytes=7), ON_CPU).argv
    assert own[own.index("--kv-cache-memory-bytes") + 1] == "7"
    assert "--kv-cache-memory-bytes" not in launch(OFF).argv


def test_a_folder_is_not_looked_up_on_the_hub(tmp_path: Path) -> None:
    assert launch(OFF, Serving(str(tmp_path))).env["HF_HUB_OFFLINE"] == "1"
    assert "HF_HUB_OFFLINE" not in launch(OFF).env
    with_hub_draft = Speculation("draft_model", draft="org/draft")
    assert "HF_HUB_OFFLINE" not in launch(with_hub_draft, Serving(str(tmp_path))).env


def test_a_second_speculative_config_is_refused() -> None:
    for extra in (
        ("--speculative-config", "{}"), ("--speculative-config={}",), ("-sc", "{}"),
        ("--speculative_config={}",), ("--speculative-config.method", "ngram"),
    ):  # fmt: skip
        with pytest.raises(OptionError, match="speculation"):
            launch(OFF, replace(TARGET, extra=extra))


def test_nothing_installed_gives_the_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("OUTDRAFT_VLLM", raising=False)
    with pytest.raises(BackendError, match="pip install vllm"):
        backend_named("vllm")


def test_suffix_without_a_memory() -> None:
    key, suffix = "suffix_decoding_max_cached_requests", Speculation("suffix", k=4)
    forgetful = replace(TARGET, forgets=True)
    new = replace(NEWEST, options=NEWEST.options | {KEY + key})
    assert Vllm(new).capabilities().forget_paths == {}, "a setting does it"
    assert key not in config_of(suffix, installation=new)
    assert config_of(suffix, forgetful, new)[key] == 0
    assert key not in config_of(Speculation("ngram", k=4), forgetful, new)
    assert Vllm(NEWEST).capabilities().forget_paths == {"suffix": ""}, "only a new start does it"
    assert key not in config_of(suffix, forgetful)
