"""Options of `outdraft watch`."""

from dataclasses import replace

from outdraft import shared_options as shared
from outdraft.options import Option

WATCHED_OPTIONS = (
    Option("urls", "addresses of servers; dns://host:port stands for all addresses of a name",
           metavar="URL", repeats=True),
    Option("--targets", "a file with a URL in each line, or Prometheus' file_sd JSON; read again "
           "while it watches", metavar="FILE"),
    Option("--dns", "a name with many addresses, and the port of the servers; may be repeated",
           metavar="HOST:PORT", repeats=True),
    Option("--prometheus", "read a Prometheus server that scrapes the servers, not the servers "
           "themselves", metavar="URL"),
    Option("--selector", "which series of Prometheus are the servers', as in its queries: "
           '{job="vllm"}', metavar="LABELS"),
    Option("--since", "how far back to read in Prometheus: 30m, 6h, 48h (default: --window)",
           metavar="TIME"),
    replace(shared.API_KEY, help="sent to the servers, or to Prometheus, as a bearer token "
            "(default: $OUTDRAFT_API_KEY, else none)"),
    Option("--interval", "between two looks at a server", default="5s", metavar="TIME"),
    Option("--window", "what is said of now is about so long a time", default="10m",
           metavar="TIME"),
    Option("--baseline", "folder of `outdraft tune`: the costs it measured say what speculation "
           "gives where no server runs without it", metavar="DIR"),
    Option("--gpu-hour-cost", "what an hour of one server costs, to give losses in money", float,
           minimum=0),
)  # fmt: skip

ACTING_OPTIONS = (
    Option("--events", "add a line of JSON for everything that happens", metavar="FILE"),
    Option("--webhook", "post the same to this address", metavar="URL"),
    Option("--webhook-secret", "key that signs what is posted (default: $OUTDRAFT_WEBHOOK_SECRET, "
           "else unsigned)", metavar="KEY"),
    Option("--act", "follow the advice: change the schedule of our own servers, write a new "
           "configuration for others", bool),
    Option("--act-command", "run this when a configuration was written; the words {config} and "
           "{replica} are filled in", metavar="COMMAND"),
    Option("--act-dir", "folder for the configurations that --act writes", default="watch-out",
           metavar="DIR"),
    replace(shared.ADMIN_KEY, help="of our servers' admin endpoint, for --act (default: "
            "$OUTDRAFT_ADMIN_KEY)"),
    Option("--state", "keep what a restart must not lose in this file", metavar="FILE"),
)  # fmt: skip

SHOWING_OPTIONS = (
    Option("--listen", "serve /metrics of the watch itself at this address (with --ui, default: "
           "127.0.0.1:9180)", metavar="ADDRESS:PORT"),
    Option("--ui", "serve a live page there, too", bool),
    Option("--for", "watch so long, then end: 60s, 10m; exit code 0 for KEEP, 3 for other advice",
           metavar="TIME"),
    Option("--write-boards", "write alert rules for Prometheus and dashboards for Grafana into "
           "this folder, and end", metavar="DIR"),
    shared.CONFIG,
    shared.JSON,
)  # fmt: skip
