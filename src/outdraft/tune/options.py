"""Options of `outdraft tune`."""

from dataclasses import replace

from outdraft import shared_options as shared
from outdraft.backends.options import ENGINE, ENGINE_FLAGS, TENSOR_PARALLEL_SIZE
from outdraft.measure.options import BLOCK, KEEP_MEMORY, MARGIN, SLO
from outdraft.options import Option
from outdraft.speculation import METHODS, RULES
from outdraft.workload.options import (
    CATEGORY,
    CONCURRENCY,
    PROMPTS,
    RATE,
    STOP_AT_EOS,
    TEMPERATURE_MIX,
)

# How engines share the machine while they are compared
ASLEEP, SIDE_BY_SIDE, VISITS = "asleep", "side-by-side", "visits"
OBJECTIVES = ("tpot", "e2e", "throughput", "goodput")

OFF_SERVER = Option("--off", "a server without speculation that somebody else started; with --on, "
                    "nothing is started here", metavar="URL")  # fmt: skip
ON_SERVER = Option("--on", "a server of an arm and what it was started with, e.g. "
                   "eagle:draft=org/head,k=3@http://host:8001; may be repeated", metavar="SPEC@URL",
                   repeats=True)  # fmt: skip

OPTIONS = (
    shared.TARGET,
    replace(shared.DRAFT, help="a draft model or head; may be repeated (default: those that ship "
            "for the target)", repeats=True),
    replace(ENGINE, default="outdraft"),
    OFF_SERVER,
    ON_SERVER,
    Option("--methods", f"of {', '.join(METHODS[1:])} (default: all the engine has but auto)",
           metavar="LIST"),
    replace(shared.K, help="draft lengths: 2..8, or 2,4,6", default="2..8", type=str,
            metavar="RANGE"),
    replace(shared.DRAFT_QUANTIZATION, help=f"{shared.DRAFT_QUANTIZATION.help} (default: none,int8 "
            "on our own engine; on others, which need a process for each, none)", default=None,
            metavar="LIST"),
    replace(shared.RULE, help=f"verification rules, of {', '.join(RULES)}", metavar="LIST"),
    PROMPTS,
    CATEGORY,
    TEMPERATURE_MIX,
    replace(CONCURRENCY, help="requests at a time, one or several loads; the first is the main one",
            default="1,4", type=str, metavar="LIST", minimum=None),
    replace(RATE, help="requests a second instead, one or several", type=str, metavar="LIST"),
    Option("--objective", f"what to improve: {', '.join(OBJECTIVES)}", default="e2e",
           choices=OBJECTIVES),
    SLO,
    replace(shared.MAX_TOKENS, default=64),
    STOP_AT_EOS,
    replace(BLOCK, help="requests of one arm in a row (default: by the load)"),
    KEEP_MEMORY,
    Option("--keep-engines", "asleep but for one, side by side, or one at a time (default: the "
           "first that engine and memory allow)", choices=(ASLEEP, SIDE_BY_SIDE, VISITS)),
    Option("--start-limit", "time for an engine to start, four times that while its log goes on: "
           "90s, 10m, 1h", metavar="TIME", default="10m"),
    replace(shared.BUDGET, help="time for measuring: 90s, 10m, 1h", default="580s"),
    MARGIN,
    replace(shared.SEED, help="of prompts and temperatures", default=0),
    shared.MAX_MODEL_LEN,
    shared.MAX_NUM_SEQS,
    TENSOR_PARALLEL_SIZE,
    shared.THREADS,
    shared.DTYPE,
    replace(shared.GPU, help="plan against this device, e.g. h100:2: what does not fit is not "
            "tried"),
    ENGINE_FLAGS,
)  # fmt: skip
