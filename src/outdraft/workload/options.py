"""Options that say which prompts are sent, and when."""

from dataclasses import replace

from outdraft import shared_options as shared
from outdraft.options import Option
from outdraft.workload.lengths import parse_lengths

PROMPTS = replace(shared.PROMPTS, default="built-in")
CATEGORY = Option("--category", "only prompts of this category; may be repeated", metavar="NAME",
                  repeats=True)  # fmt: skip
TEMPERATURE_MIX = replace(shared.TEMPERATURE, help="one temperature, or a mix such as "
                          "0.0:60%,0.8:40%", default="0", type=str, metavar="MIX")  # fmt: skip
CONCURRENCY = Option("--concurrency", "requests at a time", default=4, minimum=1)
STOP_AT_EOS = Option("--stop-at-eos", "let answers end where the model ends them; without it each "
                     "is written to its full length, so that all arms write as much",
                     bool)  # fmt: skip
RATE = Option("--rate", "requests a second, each sent at its time however slow the server is",
              float, metavar="R")  # fmt: skip

LOAD_OPTIONS = (
    PROMPTS,
    CATEGORY,
    replace(shared.DRAFT, help="the draft that the candidate serves: prompts that it was trained "
            "on are left out, and counted"),
    TEMPERATURE_MIX,
    CONCURRENCY,
    replace(shared.MAX_TOKENS, help="tokens of an answer at most (default: by the prompt)"),
    STOP_AT_EOS,
    replace(shared.SEED, help="of prompts, temperatures and arrival times", default=0),
    Option("--force-random", "allow --prompts random", bool),
)  # fmt: skip

LENGTH_OPTIONS = (
    Option("--turns", "requests of a session: each is sent once the one before is answered, with "
           "all that was said until then", default=1, minimum=1),
    Option("--input-len", "tokens of every prompt (of a session: the first), or of each from A to "
           "B: prompts are joined and cut to that length", type=parse_lengths, metavar="N|A-B"),
    Option("--output-len", "tokens of every answer, or of each from A to B", type=parse_lengths,
           metavar="N|A-B"),
)  # fmt: skip

# Of `bench`, which measures several loads one after the other
SEVERAL_LOADS = replace(CONCURRENCY, help="requests at a time; several, as in 1,2,4,8, are "
                        "measured one after the other", is_list=True, metavar="LIST")  # fmt: skip
BENCH_LOAD_OPTIONS = tuple(SEVERAL_LOADS if each is CONCURRENCY else each for each in LOAD_OPTIONS)

ARRIVAL_OPTIONS = (
    replace(RATE, help=f"{RATE.help}; one or several", is_list=True, metavar="LIST"),
    Option("--duration", "send requests for so long: 30s, 5m (with --requests: whichever ends "
           "first)", metavar="TIME"),
    Option("--burstiness", "with --rate: 1 is Poisson, less is burstier, inf is constant",
           default=1.0, metavar="B"),
    Option("--ramp-to", "with --rate: the rate at the end", float, metavar="R"),
    Option("--all-at-once", "send nothing before and after the requests that count, as other tools "
           "do: all slots begin together, and the last requests run on an emptying server", bool),
    Option("--replay", "send at the times of this trace (JSONL or CSV with timestamps), and its "
           "prompts if it has them", metavar="FILE"),
    Option("--replay-speed", "2 plays the trace twice as fast; 1000 if its unit is ms",
           default=1.0),
)  # fmt: skip
