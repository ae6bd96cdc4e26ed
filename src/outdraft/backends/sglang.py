"""SGLang. Its cap of 48 requests under speculation is never left to chance."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence

from outdraft.backends import sglang_found
from outdraft.backends.backend import Capabilities, Installed, Launch, Serving, Traffic
from outdraft.backends.model_names import model_name
from outdraft.backends.process import HOST
from outdraft.backends.sglang_flags import adaptive_config, speculative_flags
from outdraft.backends.sglang_found import Found
from outdraft.catalog import default_cache_dir
from outdraft.errors import OptionError
from outdraft.records import AcceptanceCounts
from outdraft.speculation import Speculation
from outdraft.whole_file import write_text

MAX_RUNNING = 256  # where nobody says: with and without speculation the same
# What it writes about a dead scheduler before it ends itself: 5 seconds, a minute more on GPUs.
_DUMPS = ("SGLANG_PYSPY_DUMP_BEFORE_CRASH", "SGLANG_CUDA_COREDUMP_BEFORE_CRASH")
_PENALTIES = ("repetition_penalty", "presence_penalty", "frequency_penalty")


class Sglang:
    name = "sglang"

    def __init__(
        self,
        found: Found | None = None,
        adaptive_path: str | None = None,
        *,
        writes_dumps: bool = False,
    ) -> None:
        """`found`: of a version that need not be here; None asks the installation.

        adaptive_path: where the schedule's file will be, for a launch that somebody else makes;
        None writes it into the cache folder. writes_dumps: whether it may take its time to describe
        a dead scheduler; in trials of our own it ends at once.
        """
        self._found = found
        self._adaptive_path = adaptive_path
        self._writes_dumps = writes_dumps

    @property
    def found(self) -> Found:
        if self._found is None:
            self._found = sglang_found.detect()
        return self._found

    def detect(self) -> Installed:
        return self.found.installed

    def capabilities(self) -> Capabilities:
        return Capabilities(
            methods=frozenset({"off", "ngram", "draft_model", "eagle"}),
            rules=frozenset({"coupled", "rejection"}),
            draft_quantizations=frozenset({"none"}),
            has_schedule=self.found.has("--speculative-adaptive"),  # with EAGLE heads
            has_draft_tensor_parallel=False,
            acceptance_per_request=True,
            acceptance_per_position=True,
        )

    def launch(self, serving: Serving, speculation: Speculation, port: int) -> Launch:
        notes: list[str] = []
        running = serving.max_num_seqs or MAX_RUNNING
        if serving.max_num_seqs is None:
            notes.append(
                f"--max-running-requests is set to {running}: left out, SGLang takes 48 under "
                "speculation and more without it, and the two cannot be compared"
            )
        argv = [
            self.found.python, "-m", "sglang.launch_server",
            "--model-path", model_name(serving.target, notes),
            "--host", HOST, "--port", str(port),
            "--max-running-requests", str(running),
            "--enable-metrics",
            *_serving_flags(serving, notes),
        ]  # fmt: skip
        if not speculation.is_off:
            flags, said = speculative_flags(speculation, serving, self.found)
            argv += flags
            notes += said
            if speculation.schedule:
                argv += ["--speculative-adaptive-config", self._adaptive_file(speculation)]
        env = self._environment(serving)
        return Launch((*argv, *serving.extra), env, tuple(dict.fromkeys(notes)))

    def preflight(
        self, serving: Serving, speculation: Speculation, traffic: Traffic
    ) -> tuple[str, ...]:
        return tuple(_warnings(serving, speculation, traffic, self.found))

    def drafted(self, page: Mapping[str, float]) -> AcceptanceCounts | None:
        """Rounds are counted; the rest follows from them.

        Every round gives one token beside the accepted ones, every request one without a round.
        Drafted tokens are rounds times the length now configured: too many where a schedule
        shortened drafts. Requests count when they have ended.
        """
        per_round = page.get("sglang:spec_num_draft_tokens", 0.0)
        rounds = page.get("sglang:spec_verify_calls_total")
        if rounds is None and per_round <= 0:
            return None
        rounds = rounds or 0.0
        tokens = page.get("sglang:generation_tokens_total", 0.0)
        requests = page.get("sglang:num_requests_total", 0.0)
        return AcceptanceCounts(
            num_drafts=int(rounds),
            num_draft_tokens=int(rounds * max(0.0, per_round - 1)),
            num_accepted_tokens=int(max(0.0, tokens - requests - rounds)),
        )

    def _environment(self, serving: Serving) -> dict[str, str]:
        env: dict[str, str] = {}
        if self.found.device == "cpu":
            env["SGLANG_USE_CPU_ENGINE"] = "1"  # else it looks for a GPU and ends
            if serving.threads is not None:
                env["SGLANG_CPU_OMP_THREADS_BIND"] = f"0-{serving.threads - 1}"
        if not self._writes_dumps:
            env.update(dict.fromkeys(_DUMPS, "0"))
        return env

    def _adaptive_file(self, speculation: Speculation) -> str:
        if self._adaptive_path is not None:
            return self._adaptive_path
        text = adaptive_config(speculation)
        name = hashlib.sha256(text.encode()).hexdigest()[:16]
        path = default_cache_dir() / "engines" / f"sglang-adaptive-{name}.json"
        write_text(path, text)
        return str(path)


def _serving_flags(serving: Serving, notes: list[str]) -> list[str]:
    flags: list[str] = []
    for flag, value in (
        ("--served-model-name", serving.served_name),
        ("--context-length", serving.max_model_len),
        ("--dtype", serving.dtype),
    ):
        if value is not None:
            flags += [flag, str(value)]
    if serving.tensor_parallel_size > 1:
        flags += ["--tp-size", str(serving.tensor_parallel_size)]
    if serving.quantization in ("int8", "int4"):
        raise OptionError(
            f"SGLang does not make {serving.quantization} weights while it loads; name a target "
            "whose files are quantized and leave the quantization none"
        )
    if serving.quantization not in (None, "none"):
        flags += ["--quantization", str(serving.quantization)]
    if serving.kv_cache_bytes is not None:
        notes.append(
            "kv_cache_bytes is left out: SGLang takes its KV cache as --max-total-tokens or "
            "--mem-fraction-static"
        )
    return flags


def _warnings(
    serving: Serving, speculation: Speculation, traffic: Traffic, found: Found
) -> Iterator[str]:
    running = serving.max_num_seqs or MAX_RUNNING
    if traffic.concurrency > running:
        yield f"{traffic.concurrency} requests at a time, but SGLang runs {running}: others wait"
    if speculation.is_off:
        return
    hot = any(each > 0 for each in traffic.temperatures)
    if hot and (found.device == "cpu" or (found.device == "hip" and speculation.method != "eagle")):
        yield (
            f"SGLang on {found.device} takes the likeliest token while it speculates, whatever the "
            "temperature: its texts are not those without speculation"
        )
    if used := [field for field in _PENALTIES if field in traffic.fields]:
        yield f"SGLang applies {', '.join(used)} only roughly while it speculates"
    if speculation.schedule:
        yield (
            "with a schedule SGLang's own acceptance rate is wrong (issue 34814): "
            "judge by verify_ct and the histogram"
        )
        if _gives(serving.extra, "--enable-dp-attention", "--attn-dp-size"):
            yield "with data-parallel attention SGLang leaves the schedule out without an error"
    if _gives(serving.extra, "--pp-size", "--pipeline-parallel-size"):
        yield f"SGLang does not start {speculation.method} with pipeline parallelism"


def _gives(flags: Sequence[str], *names: str) -> bool:
    return any(word.partition("=")[0] in names for word in flags)
