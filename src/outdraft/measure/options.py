"""Options of `bench` and `compare` beside those of the load."""

import json
import re
from dataclasses import replace
from typing import Any

from outdraft import shared_options as shared
from outdraft.errors import OptionError
from outdraft.options import Option

REQUESTS = Option("--requests", "how many", int, minimum=1)
SLO = Option("--slo", "promised times in ms, for the goodput: ttft=200,tpot=50", metavar="LIMITS")
BLOCK = Option("--block", "requests of one arm in a row", int, minimum=1)
MARGIN = Option("--margin", "relative difference that counts as none", default=0.01, minimum=0,
                maximum=0.99)  # fmt: skip
CSV = Option("--csv", "write a row of figures for each load to this file", metavar="FILE")
PAGE = Option("--page", "write a page with figures and pictures to this file", metavar="FILE.html")
KEEP_MEMORY = Option("--keep-memory", "let a server that remembers answers profit from those of "
                     "earlier blocks, as it does where traffic recurs", bool)  # fmt: skip


def _header(text: str) -> tuple[str, str]:
    """NAME:VALUE. The value may be a secret: no message repeats it."""
    name, colon, value = (part.strip() for part in text.partition(":"))
    is_name = re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name)
    if not colon or not is_name or not value.isprintable() or not value.isascii():
        raise OptionError("--header takes NAME:VALUE in plain ASCII, such as 'X-Tenant: blue'")
    return name, value


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise OptionError(f"--extra-body is not JSON ({error})") from None
    if not isinstance(value, dict):
        raise OptionError(f"--extra-body takes an object, such as '{{\"top_p\": 0.9}}', got {text}")
    return value


CLIENT_OPTIONS = (
    Option("--model", "name of the model to request (default: the first served)", metavar="NAME"),
    Option("--endpoint", "chat sends messages; completions sends the text alone, without the "
           "model's chat template", default="chat", choices=("chat", "completions"),
           metavar="FORM"),
    Option("--extra-body", "further fields of every request, as JSON: '{\"top_p\": 0.9}'",
           type=_object, metavar="JSON"),
    Option("--header", "sent with every request; may be repeated; kept out of files and messages",
           type=_header, metavar="NAME:VALUE", repeats=True),
    shared.API_KEY,
    Option("--gpu-metrics", "page of a dcgm-exporter on the server's host, such as "
           "http://host:9400; may be repeated: the baseline's, then the candidate's (default: "
           "nvidia-smi for a server on this machine)", metavar="URL", repeats=True),
)  # fmt: skip

BENCH_OPTIONS = (
    replace(REQUESTS, help="how many (default: 64, or the whole trace)"),
    Option("--warmup", "requests before those that count", default=4, minimum=0),
    SLO,
    KEEP_MEMORY,
    Option("--processes", "client processes", default=1, minimum=1),
    replace(shared.OUT, help="write every record to this file as JSON"),
    CSV,
    PAGE,
    shared.JSON,
)  # fmt: skip

COMPARE_OPTIONS = (
    replace(REQUESTS, help="requests to each server at most (default: 20 blocks)", minimum=10),
    replace(BLOCK, help="requests to one server in a row (default: for 3 s of steady load, by the "
            "speed of the warm-up; of saved runs 12)", minimum=2),
    Option("--one-look", "send all requests and look once, at the end: small parts of the traffic "
           "get their pairs even where the whole is clear early", bool),
    MARGIN,
    Option("--noise-floor", "differences below it are noise: a number, or the --out file of an A/A "
           "run", default="0", metavar="X|FILE"),
    Option("--plan", "output of `outdraft plan --json` for the candidate's pair, for the checks",
           metavar="FILE"),
    KEEP_MEMORY,
    Option("--ttft-bound", "the service promises a time to first token", bool),
    Option("--lossy", "the candidate's texts differ by design, as with the rule typical or "
           "another quantization: they are not judged", bool),
    replace(shared.OUT, help="write every record, the ratios and the verdict as JSON"),
    replace(CSV, help="write a row of figures for each block of each server to this file"),
    PAGE,
    shared.JSON,
)  # fmt: skip
