"""Our own engine: `outdraft serve` in a child process, spoken to like every other one."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import fields
from importlib.util import find_spec

from outdraft.backends import help_text
from outdraft.backends.backend import Capabilities, Installed, Launch, Serving, Traffic
from outdraft.backends.process import HOST
from outdraft.errors import BackendError, OptionError
from outdraft.metrics_page import drafted
from outdraft.records import AcceptanceCounts
from outdraft.speculation import METHODS, OFF, QUANTIZATIONS, RULES, Speculation
from outdraft.version import __version__

_COMMAND = (sys.executable, "-m", "outdraft", "serve")
_NEEDED = ("torch", "fastapi", "uvicorn")
_DRAIN_S = 2  # a trial that ends does not wait for texts that nobody reads


class Embedded:
    name = "outdraft"

    def detect(self) -> Installed:
        if missing := [each for each in _NEEDED if find_spec(each) is None]:
            raise BackendError(
                f"outdraft's own engine needs {', '.join(missing)}; "
                "run pip install 'outdraft[server]'"
            )
        text = help_text.said_by(_COMMAND, "--help")
        return Installed(version=__version__, options=help_text.options_in(text))

    def capabilities(self) -> Capabilities:
        return Capabilities(
            methods=frozenset(METHODS),
            rules=frozenset(RULES),
            draft_quantizations=frozenset(QUANTIZATIONS),
            has_schedule=True,
            has_draft_tensor_parallel=False,
            acceptance_per_request=True,
            acceptance_per_position=True,
        )

    def launch(self, serving: Serving, speculation: Speculation, port: int) -> Launch:
        self._check(serving, speculation)
        flags = ["--target", serving.target, "--host", HOST, "--port", str(port)]
        given = {
            "--served-model-name": serving.served_name,
            "--max-model-len": serving.max_model_len,
            "--max-num-seqs": serving.max_num_seqs,
            "--dtype": serving.dtype,
            "--quantization": serving.quantization,
            "--kv-cache-memory-bytes": serving.kv_cache_bytes,
            "--threads": serving.threads,
        }
        for flag, value in given.items():
            if value is not None:
                flags += [flag, str(value)]
        flags += ["--drain-timeout", str(_DRAIN_S), "--enable-per-request-metrics"]
        if not speculation.is_off:
            flags += ["--speculative-config", json.dumps(settings_of(speculation))]
        return Launch(argv=(*_COMMAND, *flags, *serving.extra))

    def preflight(
        self, serving: Serving, speculation: Speculation, traffic: Traffic
    ) -> tuple[str, ...]:
        warnings = []
        if speculation.is_lossy and any(each > 0 for each in traffic.temperatures):
            warnings.append("the typical rule changes the text: its answers are labelled lossy")
        limit = serving.max_model_len
        if limit is not None and traffic.longest > limit:
            warnings.append(
                f"the longest request needs {traffic.longest} tokens, --max-model-len is {limit}: "
                "it will be refused"
            )
        return tuple(warnings)

    def drafted(self, page: Mapping[str, float]) -> AcceptanceCounts | None:
        return drafted(page, ("vllm",))  # our server uses vLLM's names

    def _check(self, serving: Serving, speculation: Speculation) -> None:
        if serving.tensor_parallel_size != 1 or speculation.draft_tensor_parallel_size not in (
            None,
            1,
        ):
            raise OptionError(
                "outdraft's engine runs on one device, got a tensor parallel size of "
                f"{max(serving.tensor_parallel_size, speculation.draft_tensor_parallel_size or 1)};"
                " use vllm or sglang for more"
            )


def settings_of(speculation: Speculation) -> dict[str, object]:
    """What differs from the defaults, and method and k, as `--speculative-config` takes them."""
    return {
        field.name: getattr(speculation, field.name)
        for field in fields(speculation)
        if field.name in ("method", "k")
        or getattr(speculation, field.name) != getattr(OFF, field.name)
    }
