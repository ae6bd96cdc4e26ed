"""vLLM: tensor, pipeline and data parallel, several hosts through Ray."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from outdraft.backends import vllm_found, vllm_old_flags, vllm_preflight
from outdraft.backends.backend import Capabilities, Installed, Launch, Serving, Traffic
from outdraft.backends.process import HOST
from outdraft.backends.vllm_config import speculative_config, vllm_model
from outdraft.backends.vllm_found import KEY, Found
from outdraft.errors import OptionError
from outdraft.metrics_page import drafted
from outdraft.records import AcceptanceCounts
from outdraft.speculation import Speculation

_CPU_KV_CACHE_BYTES = 1 << 30


class Vllm:
    name = "vllm"

    def __init__(self, found: Found | None = None) -> None:
        """`found`: of a version that need not be here; None asks the installation."""
        self._found = found

    @property
    def found(self) -> Found:
        if self._found is None:
            self._found = vllm_found.detect()
        return self._found

    def detect(self) -> Installed:
        return self.found.installed

    def capabilities(self) -> Capabilities:
        found = self.found
        methods = {"off", "ngram", "draft_model", "eagle"}
        return Capabilities(
            methods=frozenset(methods | ({"suffix"} if found.has_suffix else set())),
            rules=frozenset({"coupled", "rejection"}),
            draft_quantizations=frozenset({"none"} if found.is_cpu else {"none", "int8"}),
            has_schedule=found.has(KEY + "num_speculative_tokens_per_batch_size"),
            has_draft_tensor_parallel=True,
            acceptance_per_request=found.has("--per-request-spec-decode-metrics"),
            acceptance_per_position=True,
        )

    def launch(self, serving: Serving, speculation: Speculation, port: int) -> Launch:
        found = self.found
        notes: list[str] = []
        given, extra, said = vllm_old_flags.take_out(serving.extra)
        notes += said
        speculation = vllm_old_flags.merged(speculation, given)
        if any(word.partition("=")[0] in ("--speculative-config", "-sc") for word in extra):
            raise OptionError(
                "--speculative-config among the extra flags; give it as the speculation instead"
            )
        target = vllm_model(serving.target, notes)
        argv = [found.program, "serve", target, "--host", HOST, "--port", str(port)]
        argv += self._serving_flags(serving, notes)
        if found.has("--enable-per-request-metrics"):
            argv.append("--enable-per-request-metrics")
        if not speculation.is_off:
            config, said = speculative_config(speculation, serving, found)
            notes += said
            if found.has("--per-request-spec-decode-metrics"):
                argv += ["--per-request-spec-decode-metrics", "detailed"]
            argv += ["--speculative-config", json.dumps(config)]
        models = [target, *filter(None, [None if speculation.is_off else speculation.draft])]
        env = self._environment(serving, all(Path(each).is_dir() for each in models))
        return Launch((*argv, *extra), env, tuple(dict.fromkeys(notes)))

    def preflight(
        self, serving: Serving, speculation: Speculation, traffic: Traffic
    ) -> tuple[str, ...]:
        given, *_ = vllm_old_flags.take_out(serving.extra)
        meant = vllm_old_flags.merged(speculation, given)
        return tuple(vllm_preflight.warnings(serving, meant, traffic, self.found))

    def drafted(self, page: Mapping[str, float]) -> AcceptanceCounts | None:
        return drafted(page, ("vllm",))

    def _serving_flags(self, serving: Serving, notes: list[str]) -> list[str]:
        kv_cache_bytes = serving.kv_cache_bytes
        if self.found.is_cpu and kv_cache_bytes is None:
            kv_cache_bytes = _CPU_KV_CACHE_BYTES
            notes.append("the KV cache gets 1 GiB; on a CPU vLLM would ask for 92 % of the memory")
        flags: list[str] = []
        for flag, value in (
            ("--served-model-name", serving.served_name),
            ("--max-model-len", serving.max_model_len),
            ("--max-num-seqs", serving.max_num_seqs),
            ("--dtype", serving.dtype),
            ("--kv-cache-memory-bytes", kv_cache_bytes),
        ):
            if value is not None:
                flags += [flag, str(value)]
        if serving.tensor_parallel_size > 1:
            flags += ["--tensor-parallel-size", str(serving.tensor_parallel_size)]
        if serving.quantization not in (None, "none"):
            flags += ["--quantization", _target_quantization(str(serving.quantization), notes)]
        return flags

    def _environment(self, serving: Serving, is_local: bool) -> dict[str, str]:
        env = {"VLLM_NO_USAGE_STATS": "1"}
        if is_local:
            env["HF_HUB_OFFLINE"] = "1"  # else it asks the hub about folders, and waits
        if self.found.is_cpu and serving.threads is not None:
            env["VLLM_CPU_OMP_THREADS_BIND"] = f"0-{serving.threads - 1}"
        return env


def _target_quantization(quantization: str, notes: list[str]) -> str:
    if quantization == "int4":
        raise OptionError(
            "vLLM does not make int4 weights while it loads; name a target whose files are "
            "quantized (AWQ, GPTQ, compressed-tensors) and leave the quantization none"
        )
    if quantization == "int8":
        notes.append("vLLM does not make int8 weights while it loads; fp8 takes the same memory")
        return "fp8"
    return quantization  # a name of vLLM's own
