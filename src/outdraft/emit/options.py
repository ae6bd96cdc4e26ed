"""Options of `outdraft emit`."""

from dataclasses import replace

from outdraft import shared_options as shared
from outdraft.backends.options import ENGINE, ENGINE_FLAGS, TENSOR_PARALLEL_SIZE
from outdraft.options import Option

FORMS = ("cli", "json", "compose", "k8s")

EMIT_OPTIONS = (
    Option("--speculation", "JSON or TOML file with our keys or those of vLLM's "
           "--speculative-config, or that JSON itself; - reads the standard input", metavar="FILE",
           is_required=True),
    replace(ENGINE, metavar="ENGINE", is_required=True),
    Option("--form", ", ".join(FORMS), default="cli", choices=FORMS),
    Option("--engine-version", "flags for this version (default: the one installed here, else the "
           "newest known)", metavar="V"),
    shared.OUT,
)  # fmt: skip

SERVING_OPTIONS = (
    replace(shared.TARGET, help="the model to serve, as the engine will find it (default: that of "
            f"an outdraft.toml, else {shared.TARGET.default})", default=None),
    replace(TENSOR_PARALLEL_SIZE, help=f"{TENSOR_PARALLEL_SIZE.help} (default: that of an "
            "outdraft.toml, else 1)", default=None, type=int),
    Option("--hosts", "machines: vLLM through Ray, SGLang by its own nodes", default=1),
    shared.PORT,
    shared.SERVED_MODEL_NAME,
    shared.MAX_MODEL_LEN,
    shared.MAX_NUM_SEQS,
    shared.DTYPE,
    shared.QUANTIZATION,
    ENGINE_FLAGS,
)  # fmt: skip
