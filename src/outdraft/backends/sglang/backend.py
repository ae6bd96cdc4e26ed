"""SGLang as a backend. Its limit of 48 requests under speculation is never left to chance."""

import hashlib
from collections.abc import Iterator

from outdraft.backends.backend import (
    Capabilities,
    Cluster,
    Container,
    Launch,
    Serving,
    Sleep,
    Traffic,
)
from outdraft.backends.checks import check_supported, folder_name
from outdraft.backends.flags import HOST, Flag, first_given, make_flags, user_flags
from outdraft.backends.installation import Installation
from outdraft.backends.sglang.flags import EAGLES, adaptive_config, speculative_flags
from outdraft.catalog import default_cache_dir
from outdraft.errors import OptionError
from outdraft.speculation import Speculation

_MAX_RUNNING = 256  # where nobody says: with and without speculation the same
ADAPTIVE_FILE = "sglang-adaptive.json"
# What it writes about a dead scheduler before it ends itself: 5 seconds, a minute more on GPUs.
_DUMPS = ("SGLANG_PYSPY_DUMP_BEFORE_CRASH", "SGLANG_CUDA_COREDUMP_BEFORE_CRASH")
_PENALTIES = ("repetition_penalty", "presence_penalty", "frequency_penalty")
_CLUSTER = Cluster(port=20000, rank_flag="--node-rank")
# The KV cache alone: weights come back only where the server keeps a copy of them.
_SLEEP = Sleep(
    "/release_memory_occupation",
    "/resume_memory_occupation",
    body='{"tags": ["kv_cache"]}',
    keeps_weights=True,
)
_SLEEP_FLAG = "--enable-memory-saver"


class Sglang:
    name = "sglang"
    title = "SGLang"

    def __init__(self, installation: Installation) -> None:
        self.installation = installation

    def capabilities(self) -> Capabilities:
        has_schedule = self.installation.has("--speculative-adaptive")
        device = self.installation.device
        return Capabilities(
            methods=frozenset({"off", "ngram", "draft_model", "eagle", "mtp"}),
            rules=frozenset({"coupled", "rejection"}),
            excluded=frozenset({("draft_model", "rejection")}),
            schedule_methods=frozenset(EAGLES if has_schedule else ()),
            needs_folders=True,
            forget_paths={"ngram": "/flush_cache"},  # its corpus is of all requests
            # It brings its gauges up to date every 30 s where nothing runs, and ends where it is
            # asked to release memory before.
            idle_path="/flush_cache",
            has_clusters=True,
            default_num_seqs=_MAX_RUNNING,
            sleep=_SLEEP if self.installation.has(_SLEEP_FLAG) and device == "cuda" else None,
        )

    def launch(self, serving: Serving, speculation: Speculation, port: int) -> Launch:
        check_supported(self, serving, speculation)
        notes = [*self.installation.notes]
        files: dict[str, str] = {}
        target = folder_name(serving.target, notes)
        flags = _serving_flags(target, serving, port, notes)
        if not speculation.is_off:
            flags += speculative_flags(speculation, serving, self.installation, notes)
        if speculation.schedule and not speculation.is_off:
            text = adaptive_config(speculation)
            files[self._adaptive_path(text)] = text
            flags += make_flags({"--speculative-adaptive-config": next(iter(files))})
        if serving.hosts > 1:
            flags += _host_flags(serving.hosts, notes)
        drafts = [each.values[0] for each in flags if each.name == "--speculative-draft-model-path"]
        return Launch(
            self.installation.command,
            (*flags, *user_flags(serving.extra)),
            self._environment(serving),
            tuple(notes),
            files=files,
            models=(target, *drafts),
            cluster=_CLUSTER if serving.hosts > 1 else None,
        )

    def warnings(
        self, serving: Serving, speculation: Speculation, traffic: Traffic
    ) -> Iterator[str]:
        if speculation.is_off:
            return
        device = self.installation.device
        is_sampled = any(each > 0 for each in traffic.temperatures)
        is_greedy_only = device == "cpu" or (device == "hip" and speculation.method not in EAGLES)
        if is_sampled and is_greedy_only:
            yield (
                f"SGLang on {device} takes the likeliest token while it speculates, whatever the "
                "temperature: its texts are not those without speculation"
            )
        if used := [field for field in _PENALTIES if field in traffic.fields]:
            yield f"SGLang applies {', '.join(used)} only roughly while it speculates"
        if speculation.schedule:
            yield (
                "with a schedule SGLang's own acceptance rate is wrong (issue 34814): "
                "judge by verify_ct and the histogram"
            )
            if first_given(serving.extra, ("--enable-dp-attention", "--attn-dp-size")):
                yield "with data-parallel attention SGLang leaves the schedule out without an error"
        if first_given(serving.extra, ("--pp-size", "--pipeline-parallel-size")):
            yield f"SGLang does not start {speculation.method} with pipeline parallelism"

    def container(self) -> Container:
        version = self.installation.version.partition("+")[0]
        return Container(f"lmsysorg/sglang:v{version}", uses_gpus=not self.installation.is_cpu)

    def _environment(self, serving: Serving) -> dict[str, str]:
        env: dict[str, str] = {}
        if self.installation.is_cpu:
            env["SGLANG_USE_CPU_ENGINE"] = "1"  # else it looks for a GPU and ends
            if serving.threads is not None:
                env["SGLANG_CPU_OMP_THREADS_BIND"] = f"0-{serving.threads - 1}"
        if self.installation.is_here:  # a trial that has failed ends at once
            env.update(dict.fromkeys(_DUMPS, "0"))
        return env

    def _adaptive_path(self, text: str) -> str:
        if not self.installation.is_here:
            return ADAPTIVE_FILE
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        return str(default_cache_dir() / "engines" / f"sglang-adaptive-{digest}.json")


def _serving_flags(target: str, serving: Serving, port: int, notes: list[str]) -> list[Flag]:
    if serving.quantization in ("int8", "int4"):
        raise OptionError(
            f"SGLang does not make {serving.quantization} weights while it loads; name a "
            "target whose files are quantized and leave the quantization none"
        )
    if serving.kv_cache_bytes is not None:
        notes.append(
            "kv_cache_bytes is left out: SGLang takes its KV cache as --max-total-tokens or "
            "--mem-fraction-static"
        )
    devices = serving.tensor_parallel_size * serving.hosts
    return make_flags({
        "--model-path": target,
        "--host": HOST,
        "--port": port,
        "--max-running-requests": serving.max_num_seqs or _MAX_RUNNING,
        "--enable-metrics": True,
        "--served-model-name": serving.served_name,
        "--context-length": serving.max_model_len,
        "--dtype": serving.dtype,
        "--disable-radix-cache": not serving.has_prefix_cache,
        "--tp-size": devices if devices > 1 else None,
        "--mem-fraction-static": serving.memory_share,
        _SLEEP_FLAG: serving.can_sleep,
        "--quantization": None if serving.quantization == "none" else serving.quantization,
    })  # fmt: skip


def _host_flags(hosts: int, notes: list[str]) -> list[Flag]:
    notes += [
        "SGLang does not speculate in pipeline stages: one tensor-parallel group over all hosts, "
        "which wants a fast network between them",
        "HEAD is the first host's address; every host runs the same with its own --node-rank, 0 "
        f"to {hosts - 1}",
    ]
    address = f"HEAD:{_CLUSTER.port}"
    return make_flags({"--nnodes": hosts, "--node-rank": 0, "--dist-init-addr": address})
