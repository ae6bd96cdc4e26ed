"""The highest rate that the load client holds: p99 lag under 5 ms, against a fake server here.

    python benchmarks/loadgen.py [--processes 1,2] [--rates 500,1000,…] [--tokens 1,16]

The fake server is a process on the same cores; what it needs is in the figure. Requests come as
a Poisson process, their first token after 20 ms, then 5 ms a token with about three tokens in a
chunk. A rate is held when one of `--tries` runs holds it: what else the machine does only makes
a client later. Say the load average with the result; it is printed.
"""

from __future__ import annotations

import argparse
import os
import platform
from dataclasses import dataclass

from outdraft.loadgen.endpoint import Endpoint, make_requests
from outdraft.loadgen.fleet import run_load
from outdraft.loadgen.load import new_event_loop
from outdraft.loadgen.quality import MAX_LAG_NS, LoadQuality, assess_load
from outdraft.stats.percentiles import percentile
from outdraft.testing.fake_process import fake_server_process
from outdraft.workload.arrivals import poisson
from outdraft.workload.prompt import Message, Planned, Prompt

_WORDS = "Tell me in a few words what there is to be known about this. " * 10  # 120 tokens or so


@dataclass(frozen=True)
class Held:
    quality: LoadQuality
    sent_per_s: float
    ttft_ns: list[int]  # planted are 20 ms; the rest is the client, the server and the machine

    @property
    def is_held(self) -> bool:
        lag = self.quality.lag_p99_ns
        return lag is not None and lag < MAX_LAG_NS and not self.quality.num_errors


def measured(rate: float, processes: int, tokens: int, seconds: float) -> Held:
    prompt = Prompt("p", "chat", (Message("user", _WORDS),), tokens)
    plan = [
        Planned(prompt, 0.0, tokens, seed=1, offset_ns=offset)
        for offset in poisson(rate, round(rate * seconds), seed=1)
    ]
    with fake_server_process(fast=True, ttft_s=0.02, tpot_s=0.005, k=3) as url:
        run = run_load(Endpoint(url), make_requests(plan), processes=processes, keep_text=False)
    sent = sorted(record.sent_ns for record in run.records if record.sent_ns is not None)
    ttfts = sorted(record.ttft_ns for record in run.records if record.ttft_ns is not None)
    return Held(assess_load(run), (len(sent) - 1) / (sent[-1] - sent[0]) * 1e9, ttfts)


def row(tokens: int, processes: int, rate: float, held: Held) -> str:
    quality = held.quality
    lags = (quality.lag_p50_ns, quality.lag_p99_ns)
    ttfts = (percentile(held.ttft_ns, 0.5), percentile(held.ttft_ns, 0.99))
    times = "  ".join(f"{(each or 0) / 1e6:5.1f} ms" for each in (*lags, *ttfts))
    return (
        f"{tokens:6}  {processes:9}  {rate:7.0f}  {held.sent_per_s:6.0f}  {times}  "
        f"{quality.stalled_share:13.1%}  {quality.cpu_share:9.0%}  "
        f"{'yes' if held.is_held else 'no'}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--processes", default="1,2")
    parser.add_argument("--rates", default="500,1000,1500,2000,2500,3000,3500,4000")
    parser.add_argument("--tokens", default="1,16")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--tries", type=int, default=3)
    args = parser.parse_args()
    loop = new_event_loop()
    print(
        f"{os.cpu_count()} cores · Python {platform.python_version()} · {type(loop).__module__} · "
        f"load average at the start {os.getloadavg()[0]:.1f}"
    )
    loop.close()
    print(
        "tokens  processes  planned  sent/s   lag p50   lag p99  TTFT p50  TTFT p99  "
        "loop blocked   of a core  held"
    )
    for tokens in map(int, args.tokens.split(",")):
        for processes in map(int, args.processes.split(",")):
            for rate in map(float, args.rates.split(",")):
                for _ in range(args.tries):
                    held = measured(rate, processes, tokens, args.seconds)
                    print(row(tokens, processes, rate, held), flush=True)
                    if held.is_held:
                        break
                else:
                    break
    print(f"load average at the end {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
