"""Our own engine: `outdraft serve` in a child process, spoken to like every other one."""

import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from importlib import metadata
from importlib.util import find_spec

from outdraft.backends.backend import Capabilities, Container, Launch, Serving, Traffic
from outdraft.backends.checks import check_supported
from outdraft.backends.flags import HOST, json_flag, make_flags, user_flags
from outdraft.backends.installation import Installation, VersionTable
from outdraft.errors import BackendError, OptionError
from outdraft.speculation import OFF, OWN_METHODS, QUANTIZATIONS, RULES, Speculation
from outdraft.version import __version__

TABLE = VersionTable("outdraft", __version__, ("outdraft", "serve"), {__version__: ()})
_HERE = Installation(__version__, frozenset(), (sys.executable, "-m", *TABLE.command), device="cpu")
_NEEDED = ("torch", "fastapi", "uvicorn")
_DEFAULT_SLOTS = 16  # of `serve`
_DRAIN_S = 2  # a trial that ends does not wait for texts that nobody reads


def detect() -> Installation:
    if missing := [each for each in _NEEDED if find_spec(each) is None]:
        raise BackendError(
            f"outdraft's own engine needs {', '.join(missing)}; run pip install 'outdraft[server]'"
        )
    return replace(_HERE, library=f"torch {metadata.version('torch')}")


class Embedded:
    name = "outdraft"
    title = "outdraft"

    def __init__(self, installation: Installation = _HERE) -> None:
        self.installation = installation

    def capabilities(self) -> Capabilities:
        return Capabilities(
            methods=frozenset(OWN_METHODS),
            rules=frozenset(RULES),
            draft_quantizations=frozenset(QUANTIZATIONS),
            schedule_methods=frozenset(OWN_METHODS[1:]),
            shares_process=True,
            default_num_seqs=_DEFAULT_SLOTS,
            needs_local_files=True,
            has_shipped_drafts=True,
            forget_paths={"suffix": "/forget", "auto": "/forget"},
            usual_start_s=6.0,
        )

    def launch(self, serving: Serving, speculation: Speculation, port: int) -> Launch:
        check_supported(self, serving, speculation)
        size = max(serving.tensor_parallel_size, speculation.draft_tensor_parallel_size or 1)
        if size > 1:
            raise OptionError(
                f"outdraft's engine runs on one device, got a tensor parallel size of {size}; use "
                "vllm or sglang for more"
            )
        flags = make_flags({
            "--target": serving.target,
            "--host": HOST,
            "--port": port,
            "--served-model-name": serving.served_name,
            "--max-model-len": serving.max_model_len,
            "--max-num-seqs": serving.max_num_seqs,
            "--dtype": serving.dtype,
            "--quantization": serving.quantization,
            "--kv-cache-memory-bytes": serving.kv_cache_bytes,
            "--threads": serving.threads,
            "--no-enable-prefix-caching": not serving.has_prefix_cache,
            "--enable-forget": serving.forgets,
            "--drain-timeout": _DRAIN_S if self.installation.is_here else None,
            "--enable-per-request-metrics":
                (True, "each answer reports its own times and acceptance"),
        })  # fmt: skip
        if speculation.is_off:
            flags += make_flags({"--method": "off"})
        else:
            flags.append(json_flag("--speculative-config", own_settings(speculation)))
        draft = None if speculation.is_off else speculation.draft
        return Launch(
            self.installation.command,
            (*flags, *user_flags(serving.extra)),
            notes=self.installation.notes,
            models=(serving.target, draft) if draft else (serving.target,),
        )

    def warnings(
        self, serving: Serving, speculation: Speculation, traffic: Traffic
    ) -> Iterator[str]:
        if speculation.is_lossy and any(each > 0 for each in traffic.temperatures):
            yield "the typical rule changes the text: its answers are labelled lossy"

    def container(self) -> Container:
        image = f"outdraft:{__version__}"
        own = f"made by: docker build -t {image} . in the repository of outdraft"
        return Container(image, own, uses_gpus=False, cache="/models", host_cache="")


def own_settings(speculation: Speculation) -> dict[str, object]:
    """Method, k and whatever differs from the defaults, as our `--speculative-config` takes it."""
    return {
        key: value
        for key, value in asdict(speculation).items()
        if key in ("method", "k") or value != getattr(OFF, key)
    }
