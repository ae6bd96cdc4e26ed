"""Options of `outdraft serve` beside those of the engine."""

from dataclasses import replace

from outdraft import shared_options as shared
from outdraft.options import Option

MAX_CANARY_SHARE = 0.02  # of the decoding time

SERVER_OPTIONS = (
    Option("--host", "address to serve at", default="127.0.0.1", metavar="ADDRESS"),
    replace(shared.PORT, help="port to serve at; 0 takes a free one", minimum=0),
    replace(shared.API_KEY, help="key that requests must send, except to /health (default: "
            "$OUTDRAFT_API_KEY, else none)"),
    replace(shared.SERVED_MODEL_NAME, help="what requests call the model; may be repeated "
            "(default: the target)", repeats=True),
    Option("--max-num-waiting", "requests that may wait; more are answered with 429", default=256,
           minimum=0),
    Option("--drain-timeout", "seconds for open requests to finish after SIGTERM", default=30.0,
           metavar="S", minimum=0, maximum=100_000),
    Option("--enable-per-request-metrics", "send times and acceptance with every answer, not only "
           "where a request asks for them", bool),
    Option("--enable-forget", "answer POST /forget, which drops what is kept of earlier requests: "
           "cached prompts, and answers that the suffix proposer remembers", bool),
    Option("--canary-share", "share of decoding time in which nobody gets drafts, in slices of a "
           "few steps, so that /metrics says what speculation is worth now; no text changes by it",
           default=0.0, metavar="SHARE", minimum=0, maximum=MAX_CANARY_SHARE),
    replace(shared.ADMIN_KEY, help="key that opens /admin/speculation, which changes draft lengths "
            "while serving (default: $OUTDRAFT_ADMIN_KEY, else there is no such path)"),
    Option("--access-log", "write a line on stderr for each request", bool),
    shared.CONFIG,
)  # fmt: skip
