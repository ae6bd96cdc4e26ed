"""The options of every command, in groups by their title in --help.

`COMMAND --help` imports this and nothing else, so neither this module nor an `options.py` imports
a library. What a command does is `run` in the module of its name.
"""

from outdraft.cli import options as own
from outdraft.distill import options as distill
from outdraft.emit.options import EMIT_OPTIONS, SERVING_OPTIONS
from outdraft.engine.options import (
    BATCH_OPTIONS,
    ENGINE_OPTIONS,
    SAMPLING_OPTIONS,
    SPECULATION_OPTIONS,
)
from outdraft.measure.options import BENCH_OPTIONS, CLIENT_OPTIONS, COMPARE_OPTIONS
from outdraft.options import Option
from outdraft.server.options import SERVER_OPTIONS
from outdraft.tune.options import OPTIONS as SEARCH_OPTIONS
from outdraft.watch.options import ACTING_OPTIONS, SHOWING_OPTIONS, WATCHED_OPTIONS
from outdraft.workload.options import (
    ARRIVAL_OPTIONS,
    BENCH_LOAD_OPTIONS,
    LENGTH_OPTIONS,
    LOAD_OPTIONS,
)

GROUPS: dict[str, dict[str, tuple[Option, ...]]] = {
    "generate": {
        "arguments": (own.PROMPT,),
        "target": ENGINE_OPTIONS,
        "speculation": SPECULATION_OPTIONS,
        "sampling": SAMPLING_OPTIONS,
        "output": own.GENERATE_OPTIONS,
    },
    "serve": {
        "server": SERVER_OPTIONS,
        "target": ENGINE_OPTIONS,
        "batch": BATCH_OPTIONS,
        "speculation": SPECULATION_OPTIONS,
        "speculation, as in vLLM": own.VLLM_OPTIONS,
    },
    "bench": {
        "arguments": (own.URL,),
        "load": (*BENCH_LOAD_OPTIONS, *CLIENT_OPTIONS),
        "arrivals": ARRIVAL_OPTIONS,
        "lengths": LENGTH_OPTIONS,
        "bench": BENCH_OPTIONS,
        "without a server": own.QUICK_OPTIONS,
    },
    "compare": {
        "arguments": (own.BASELINE, own.CANDIDATE),
        "load": (*LOAD_OPTIONS, *CLIENT_OPTIONS),
        "comparison": COMPARE_OPTIONS,
    },
    "tune": {"search": SEARCH_OPTIONS, "files": own.TUNE_OPTIONS},
    "watch": {
        "what is watched": WATCHED_OPTIONS,
        "what happens then": ACTING_OPTIONS,
        "what is shown": SHOWING_OPTIONS,
    },
    "report": {"report": own.REPORT_OPTIONS},
    "emit": {"what to write": EMIT_OPTIONS, "what is served": SERVING_OPTIONS},
    "plan": {
        "models": own.PLAN_MODEL_OPTIONS,
        "memory": own.PLAN_MEMORY_OPTIONS,
        "serving": own.PLAN_RUN_OPTIONS,
    },
    "distill": {
        "draft": distill.DRAFT_OPTIONS,
        "sizes": distill.SIZE_OPTIONS,
        "data and training": distill.TRAINING_OPTIONS,
    },
    "export": {"export": distill.EXPORT_OPTIONS},
}
