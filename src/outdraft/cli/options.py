"""Options that only a command knows: what it takes and prints, those of `plan`, those of vLLM."""

from dataclasses import replace

from outdraft import shared_options as shared
from outdraft.backends.vllm.old_flags import OLD_FLAGS
from outdraft.engine.options import ENGINE_OPTIONS
from outdraft.options import Option
from outdraft.speculation import METHODS

_COLOURS = ("auto", "always", "never")

PROMPT = Option("prompt", "the prompt; - reads it from stdin", metavar="PROMPT")
GENERATE_OPTIONS = (
    Option("--raw", "do not apply the chat template", bool),
    Option("--explain", "say on stderr who drafted in each round, how many tokens, and why", bool),
    Option("--compare", "time it against the same engine with speculation off, in turns", bool),
    Option("--runs", "of each, for --compare; from 5 on there is an interval", default=3,
           minimum=1),
    shared.JSON,
    Option("--color", ", ".join(_COLOURS), default="auto", metavar="WHEN", choices=_COLOURS),
)  # fmt: skip

OLD_OPTIONS = tuple(
    Option(flag, "", type=type, is_hidden=True) for flag, (_, type) in OLD_FLAGS.items()
)
VLLM_OPTIONS = (
    Option("--speculative-config", "speculation as vLLM's JSON, e.g. "
           '\'{"method": "ngram", "num_speculative_tokens": 5}\'', metavar="JSON"),
    *OLD_OPTIONS,
)  # fmt: skip

URL = Option("url", "address of the server", metavar="URL", is_optional=True)
QUICK_OPTIONS = (
    Option("--quick", "no server: how fast our own engine reads prompts and writes, by the length "
           "of the prompt", bool),
    Option("--lengths", "with --quick: tokens of the prompts", int, (16, 128, 512), minimum=1,
           is_list=True, metavar="LIST"),
    Option("--repetitions", "with --quick: runs of each length", default=5, minimum=1),
    *ENGINE_OPTIONS,
)  # fmt: skip
BASELINE = Option("baseline", "a URL, or a saved run", metavar="BASELINE")
CANDIDATE = replace(BASELINE, flag="candidate", metavar="CANDIDATE")

TUNE_OPTIONS = (
    replace(shared.OUT, help="folder for the report, the results and the configurations; a run "
            "that was interrupted continues there", default="tune-out", metavar="DIR"),
    Option("--retry-failed", "try arms again that have failed in --out before", bool),
    replace(shared.API_KEY, help="sent to the servers of --off and --on as a bearer token"),
    shared.CONFIG,
    shared.JSON,
)  # fmt: skip

REPORT_OPTIONS = (
    Option("folder", "folder of the tuning run", metavar="DIR"),
    replace(shared.OUT, help="write the page to this file (default: DIR/report.html)"),
    shared.JSON,
)

PLAN_MODEL_OPTIONS = (
    replace(shared.TARGET, help="a name of the table (llama-3.1-70b, qwen3-8b …) or of the "
            "catalog, a folder, a .gguf file or a hub id; only headers are read", default=None,
            is_required=True),
    shared.DRAFT,
    replace(shared.METHOD, help=f"{', '.join(METHODS)} (default: that of the --draft, else off); "
            "mtp counts the target's own layers"),
    Option("--suggest", "list drafts of the table for the target", bool),
    Option("--target-quantization", "bf16, fp8, int8, int4, mxfp4 or files (default: as its files "
           "are, else as published)", metavar="FORMAT"),
    replace(shared.DRAFT_QUANTIZATION, help="the same for the draft", default=None),
)  # fmt: skip

PLAN_MEMORY_OPTIONS = (
    shared.GPU,
    Option("--memory", "memory of each device instead: 80GB, 79.6GiB:2 …", metavar="SIZE[:N]"),
    Option("--utilization", "share of each device's memory that the engine may use", default=0.92,
           metavar="SHARE"),
    replace(shared.KV_CACHE_BYTES, help="size of the KV cache on each device instead, such "
            "as 1GiB", metavar="SIZE"),
    Option("--kv-dtype", "bfloat16, float16, float32 or fp8", default="bfloat16", metavar="TYPE"),
)  # fmt: skip

PLAN_RUN_OPTIONS = (
    replace(shared.MAX_MODEL_LEN, help="tokens of a prompt with its answer (default: 8192, or the "
            "context of the target where that is less)"),
    replace(shared.MAX_NUM_SEQS, default=256),
    replace(shared.MAX_NUM_BATCHED_TOKENS, default=8192),
    shared.K,
    Option("--draft-tensor-parallel-size", "devices of the draft: 1 or all (default: all)", int),
    Option("--draft-sample-method", "probabilistic (rule rejection) keeps the draft's logits; "
           "greedy does not", default="greedy", choices=("probabilistic", "greedy"),
           metavar="HOW"),
    Option("--enforce-eager", "no CUDA graphs", bool),
    shared.JSON,
)  # fmt: skip
