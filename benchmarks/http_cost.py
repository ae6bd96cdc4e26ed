"""What HTTP and the server cost: tokens per second over HTTP compared with the Python API.

    python benchmarks/http_cost.py [--rounds 10] [--tokens 64] [--streams 1,16] [--method off]

The server and a process with the Python API have the same settings and take turns, so that only one
of them computes at a time. The client streams, reads every event and runs on the same cores, so its
work is part of the figure.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import statistics
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

import aiohttp
import torch

from arms import machine_line, ratio, ratio_text, take_turns
from disconnects import Server
from outdraft import SamplingParams, Speculation, load_engine

_TOPICS = (
    "the sea", "a bridge", "winter", "bread", "an old map", "the moon", "a garden", "trains",
    "paper", "a violin", "rain", "the desert", "clocks", "a lighthouse", "honey", "glass",
)  # fmt: skip


def python_process(commands: Connection, method: str, threads: int, tokens: int) -> None:
    """The Python API in a process that does nothing else: (round, streams) → tokens per second."""
    torch.set_num_threads(threads)
    engine = load_engine(speculation=Speculation(method=method))
    params = SamplingParams(max_tokens=tokens, ignore_eos=True)
    while (command := commands.recv()) is not None:
        index, streams = command
        engine.forget()
        chats = [engine.tokenizer.apply_chat(messages(index, each)) for each in range(streams)]
        start = time.perf_counter()
        done = engine.generate(chats, params)
        commands.send(sum(len(each.tokens) for each in done) / (time.perf_counter() - start))


def python_arm(engine: Connection, streams: int) -> Callable[[int], float]:
    def arm(index: int) -> float:
        engine.send((index, streams))
        speed: float = engine.recv()
        return speed

    return arm


def http_arm(url: str, streams: int, tokens: int) -> Callable[[int], float]:
    async def one(session: aiohttp.ClientSession, body: dict[str, object]) -> int:
        last = b""
        async with session.post(f"{url}/v1/chat/completions", json=body) as response:
            response.raise_for_status()
            async for line in response.content:
                if line.startswith(b"data: {"):
                    last = line
        return int(json.loads(last[6:])["usage"]["completion_tokens"])

    async def all_streams(index: int) -> float:
        bodies = [
            {
                "messages": messages(index, each),
                "max_tokens": tokens,
                "temperature": 0,
                "ignore_eos": True,
                "stream": True,
                "stream_options": {"include_usage": True},
            }
            for each in range(streams)
        ]
        async with aiohttp.ClientSession() as session:
            start = time.perf_counter()
            counts = await asyncio.gather(*(one(session, body) for body in bodies))
            return sum(counts) / (time.perf_counter() - start)

    return lambda index: asyncio.run(all_streams(index))


def messages(index: int, stream: int) -> list[dict[str, str]]:
    # The round is part of the text, so that no prompt is in a cache.
    topic = _TOPICS[stream % len(_TOPICS)]
    return [{"role": "user", "content": f"{index}-{stream}: write a few lines about {topic}."}]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--streams", default="1,16")
    parser.add_argument("--method", default="off")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    engine, commands = context.Pipe()
    settings = (commands, args.method, args.threads, args.tokens)
    context.Process(target=python_process, args=settings, daemon=True).start()
    server = Server("--method", args.method, "--threads", str(args.threads))
    try:
        arms: dict[str, Callable[[int], float]] = {}
        sizes = [int(each) for each in args.streams.split(",")]
        for streams in sizes:
            arms[f"python {streams}"] = python_arm(engine, streams)
            arms[f"http {streams}"] = http_arm(server.address.url, streams, args.tokens)
        take_turns(arms, 1)  # warm-up
        results = take_turns(arms, args.rounds)
    finally:
        engine.send(None)
        server.end()
    print(machine_line())
    for streams in sizes:
        python, http = results[f"python {streams}"], results[f"http {streams}"]
        print(
            f"  {streams:3} streams: Python API {statistics.median(python):6.1f} tokens/s, "
            f"HTTP {statistics.median(http):6.1f}, "
            f"ratio {ratio_text(ratio(http, python), 3)} n={args.rounds}"
        )


if __name__ == "__main__":
    main()
