"""vLLM as a backend: its command, what it can do, its container."""

import re
from collections.abc import Iterator
from pathlib import Path

from outdraft.backends.backend import (
    Capabilities,
    Cluster,
    Container,
    Launch,
    Serving,
    Sleep,
    Traffic,
)
from outdraft.backends.checks import check_supported
from outdraft.backends.flags import HOST, Flag, json_flag, make_flags
from outdraft.backends.installation import Installation
from outdraft.backends.vllm import old_flags
from outdraft.backends.vllm.installation import KEY, SUFFIX_PACKAGE
from outdraft.backends.vllm.preflight import LEAST_DEFAULT_SLOTS, vllm_warnings
from outdraft.backends.vllm.speculative_config import (
    CACHED_REQUESTS,
    speculative_config,
    vllm_model,
)
from outdraft.errors import OptionError
from outdraft.speculation import LOOKED_UP, Speculation

_RAY = Cluster(
    port=6379,
    head_command="ray start --head --port=6379",
    worker_command="ray start --address=HEAD:6379",
    wait_flag="--block",
    status_command="ray status",
)
# Level 2 would drop the weights; those of a draft do not come back then (its issue 52479).
_SLEEP = Sleep("/sleep?level=1", "/wake_up")
_SLEEP_FLAG = "--enable-sleep-mode"
_MEMORY_SHARE = 0.9  # its own default is 0.9 or 0.92, by its version


class Vllm:
    name = "vllm"
    title = "vLLM"

    def __init__(self, installation: Installation) -> None:
        self.installation = installation

    def capabilities(self) -> Capabilities:
        here = self.installation
        methods = {"ngram", "draft_model", "eagle", "mtp", "medusa"}
        if SUFFIX_PACKAGE not in here.missing:
            methods.add("suffix")
        remembers = "suffix" in methods and not here.has(KEY + CACHED_REQUESTS)
        has_schedule = here.has(KEY + "num_speculative_tokens_per_batch_size")
        return Capabilities(
            methods=frozenset(methods | {"off"}),
            rules=frozenset({"coupled", "rejection"}),
            draft_quantizations=frozenset({"none"} if here.is_cpu else {"none", "int8"}),
            excluded=frozenset({("medusa", "rejection")}),  # its heads give no probabilities
            # Medusa has as many heads at work as it was started with.
            schedule_methods=frozenset(methods - {"medusa"} if has_schedule else ()),
            has_draft_tensor_parallel=True,
            acceptance_per_request=here.has("--per-request-spec-decode-metrics"),
            needs_folders=True,
            forget_paths={"suffix": ""} if remembers else {},
            has_clusters=True,
            default_num_seqs=LEAST_DEFAULT_SLOTS,
            memory_share=None if here.is_cpu else _MEMORY_SHARE,
            usual_start_s=90.0,
            sleep=_SLEEP if here.has(_SLEEP_FLAG) and here.device == "cuda" else None,
        )

    def launch(self, serving: Serving, speculation: Speculation, port: int) -> Launch:
        old, extra, notes = old_flags.take_out(serving.extra)
        notes = [*self.installation.notes, *notes]
        speculation = old_flags.merged(speculation, old)
        check_supported(self, serving, speculation)
        for flag in extra:  # also --speculative_config, --speculative-config.KEY
            if re.match(r"(--speculative[-_]config|-sc)\b", flag.name):
                raise OptionError(
                    f"{flag.name} is among the extra flags; give it as the speculation instead"
                )
        target = vllm_model(serving.target, notes)
        models = [target]
        flags = [Flag("", (target,), "what is served"), *self._serving_flags(serving, port, notes)]
        if not speculation.is_off:
            config = speculative_config(speculation, serving, self.installation, notes)
            models += [config["model"]] if "model" in config else []
            if self.installation.has("--per-request-spec-decode-metrics"):
                flags += make_flags({"--per-request-spec-decode-metrics": "detailed"})
            flags.append(json_flag("--speculative-config", config))
        if serving.hosts > 1:
            flags += make_flags({
                "--pipeline-parallel-size": serving.hosts, "--distributed-executor-backend": "ray",
            })  # fmt: skip
            notes.append("Ray is a package of its own: pip install ray beside vLLM on every host")
            if speculation.method not in ("off", *LOOKED_UP):
                notes.append("the draft runs on the last pipeline stage")
        return Launch(
            self.installation.command,
            (*flags, *extra),
            self._environment(serving, models),
            tuple(notes),
            models=tuple(models),
            cluster=_RAY if serving.hosts > 1 else None,
        )

    def warnings(
        self, serving: Serving, speculation: Speculation, traffic: Traffic
    ) -> Iterator[str]:
        old, *_ = old_flags.take_out(serving.extra)
        meant = old_flags.merged(speculation, old)
        return vllm_warnings(serving, meant, traffic, self.installation)

    def container(self) -> Container:
        version = self.installation.version.partition("+")[0]
        if self.installation.is_cpu:
            own = "an image of yours with vLLM for the CPU"
            return Container(f"vllm-cpu:{version}", own, uses_gpus=False)
        return Container(f"vllm/vllm-openai:v{version}")

    def _serving_flags(self, serving: Serving, port: int, notes: list[str]) -> list[Flag]:
        kv_cache: object = serving.kv_cache_bytes
        if self.installation.is_cpu and kv_cache is None:
            kv_cache = (1 << 30, "1 GiB; on a CPU vLLM would ask for 92 % of the memory")
        devices = serving.tensor_parallel_size
        return make_flags({
            "--host": HOST,
            "--port": port,
            "--served-model-name": serving.served_name,
            "--max-model-len": serving.max_model_len,
            "--max-num-seqs": serving.max_num_seqs,
            "--dtype": serving.dtype,
            "--kv-cache-memory-bytes": kv_cache,
            "--gpu-memory-utilization": serving.memory_share,
            _SLEEP_FLAG: serving.can_sleep,
            "--no-enable-prefix-caching": not serving.has_prefix_cache,
            "--tensor-parallel-size": devices if devices > 1 else None,
            "--quantization": _target_quantization(serving.quantization, notes),
            "--enable-per-request-metrics": self.installation.has("--enable-per-request-metrics"),
        })  # fmt: skip

    def _environment(self, serving: Serving, models: list[str]) -> dict[str, str]:
        env = {"VLLM_NO_USAGE_STATS": "1"}
        if all(Path(each).is_dir() for each in models):
            env["HF_HUB_OFFLINE"] = "1"  # else it asks the hub about folders, and waits
        if serving.can_sleep:
            env["VLLM_SERVER_DEV_MODE"] = "1"  # else it has no paths to sleep and to wake up
        if self.installation.is_cpu and serving.threads is not None:
            env["VLLM_CPU_OMP_THREADS_BIND"] = f"0-{serving.threads - 1}"
        return env


def _target_quantization(quantization: str | None, notes: list[str]) -> str | None:
    if quantization == "int4":
        raise OptionError(
            "vLLM does not make int4 weights while it loads; name a target whose files are "
            "quantized (AWQ, GPTQ, compressed-tensors) and leave the quantization none"
        )
    if quantization == "int8":
        notes.append("vLLM does not make int8 weights while it loads; fp8 takes the same memory")
        return "fp8"
    return None if quantization == "none" else quantization  # a name of vLLM's own
