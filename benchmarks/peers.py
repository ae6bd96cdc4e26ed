"""How fast is the engine on a CPU beside llama.cpp with the same weights?

    python benchmarks/peers.py [--rounds 8] [--threads 2] [--tokens 128] [--only NAME,…] [--json]

All servers are up at once and answer in turns, one request at a time, so that whatever else the
machine does slows all of them alike: llama.cpp with the weights as F32, Q8_0 and Q4_1, with and
without a draft, and ours in float32, int8 and int4, with and without. Greedy, held-out prompts of
chat and code. Tokens per second after the first token; `prompt` is the speed of reading one of
about 512 tokens. Ratios are medians over rounds with 95 % intervals. `limit` is the bytes that a
step must read over the bandwidth that both cores have together, measured here.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from urllib.request import Request, urlopen

import torch

from arms import machine_line, ratio, ratio_text, take_turns

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "dev" / "engines"))

from gguf_as import write_as  # noqa: E402

from outdraft.catalog import resolve  # noqa: E402
from outdraft.workload.sets import choose_prompts  # noqa: E402

EAGLE = ("--method", "eagle", "--draft", "smollm2-135m-eagle", "--draft-quantization")
OURS: dict[str, tuple[str, ...]] = {
    "float32": ("--method", "off"),
    "int8": ("--method", "off", "--quantization", "int8"),
    "int4": ("--method", "off", "--quantization", "int4"),
    "float32 eagle k=5 int8": (*EAGLE, "int8", "--k", "5"),
    "int8 eagle k=4 int8": ("--quantization", "int8", *EAGLE, "int8", "--k", "4"),
    "int4 eagle k=4 int4": ("--quantization", "int4", *EAGLE, "int4", "--k", "4"),
}
THEIRS = ("F32", "Q8_0", "Q4_1", "F32 draft", "Q4_1 draft")
RATIOS = (
    ("float32", "llama.cpp F32"),
    ("int8", "llama.cpp Q8_0"),
    ("int4", "llama.cpp Q4_1"),
    ("float32 eagle k=5 int8", "float32"),
    ("int8 eagle k=4 int8", "int8"),
    ("int4 eagle k=4 int4", "int4"),
    ("llama.cpp F32 draft", "llama.cpp F32"),
    ("llama.cpp Q4_1 draft", "llama.cpp Q4_1"),
    ("int4 eagle k=4 int4", "llama.cpp Q4_1"),
    ("int4 eagle k=4 int4", "llama.cpp Q4_1 draft"),
)
PROMPT_TOKENS = 512


class Process:
    """A server in a process of its own."""

    def __init__(self, argv: list[str], port: int, **fields: object) -> None:
        self._fields = fields
        self.url = f"http://127.0.0.1:{port}"
        log = subprocess.DEVNULL
        self._process = subprocess.Popen(argv, stdout=log, stderr=log, start_new_session=True)
        deadline = time.monotonic() + 120
        while True:
            if self._process.poll() is not None:
                raise SystemExit(f"did not start: {' '.join(argv)}")
            try:
                urlopen(f"{self.url}/health", timeout=2).read()
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise SystemExit(f"no answer: {' '.join(argv)}") from None
                time.sleep(0.2)

    def stop(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def ask(self, text: str, tokens: int) -> tuple[float, float, str]:
        """Seconds to the first token, tokens per second after it, the text."""
        body: dict[str, object] = {
            "messages": [{"role": "user", "content": text}],
            "max_tokens": tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        body |= self._fields
        request = Request(f"{self.url}/v1/chat/completions", json.dumps(body).encode())
        request.add_header("Content-Type", "application/json")
        started = time.perf_counter()
        first, last, count, pieces = 0.0, 0.0, 0, []
        with urlopen(request, timeout=300) as answer:
            for line in answer:
                if not line.startswith(b"data: {"):
                    continue
                chunk = json.loads(line[6:])
                for choice in chunk.get("choices", []):
                    if choice["delta"].get("content"):
                        last = time.perf_counter()
                        first = first or last
                        pieces.append(choice["delta"]["content"])
                if chunk.get("usage"):
                    count = chunk["usage"]["completion_tokens"]
        return first - started, (count - 1) / max(last - first, 1e-9), "".join(pieces)


def start(name: str, port: int, threads: int, files: dict[str, Path]) -> Process:
    if not name.startswith("llama.cpp"):
        flags = ["--threads", str(threads), "--no-enable-prefix-caching", "--max-num-seqs", "4"]
        command = [sys.executable, "-m", "outdraft", "serve", "--port", str(port)]
        return Process([*command, *flags, *OURS[name]], port)
    kind = name.split()[1]
    program = ROOT / ".engines" / "llamacpp" / "bin" / "llama-server"
    flags = ["-c", "4096", "-np", "1", "-t", str(threads), "-tb", str(threads), "--no-webui"]
    more = ["-md", str(files["draft"]), "--spec-draft-n-max", "4"] if "draft" in name else []
    address = ["--host", "127.0.0.1", "--port", str(port)]
    return Process(
        [str(program), "-m", str(files[kind]), *address, *flags, *more], port, cache_prompt=False
    )


def gguf_files(folder: Path) -> dict[str, Path]:
    source = resolve("smollm2-135m").path
    files = {"Q4_1": Path(source), "draft": Path(resolve("smollm2-135m-draft").path)}
    folder.mkdir(parents=True, exist_ok=True)
    for kind in ("F32", "Q8_0"):
        files[kind] = folder / f"smollm2-{kind}.gguf"
        if not files[kind].exists():
            write_as(files["Q4_1"], files[kind], kind)
    return files


def bandwidth_gb_s() -> float:
    """Of reading, with all threads: the best of several sums over 512 MB."""
    values = torch.ones(128 << 20)
    best = min(_timed(values.sum) for _ in range(5))
    return float(values.nbytes / best / 1e9)


def _timed(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--only", default="")
    parser.add_argument("--folder", type=Path, default=Path.home() / ".cache/outdraft/peers")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    names = args.only.split(",") if args.only else [*OURS, *(f"llama.cpp {k}" for k in THEIRS)]
    files = gguf_files(args.folder)
    prompts = [
        next(iter(prompt.messages)).content
        for kind in ("chat", "code")
        for prompt in list(choose_prompts("built-in", categories=(kind,)))[::7]
    ]
    prompts = [text for pair in zip(prompts[::2], prompts[1::2], strict=False) for text in pair]
    long = " ".join(" ".join(prompts).split())
    limit = bandwidth_gb_s()
    servers = {name: start(name, 8400 + i, args.threads, files) for i, name in enumerate(names)}
    try:
        for server in servers.values():
            server.ask("Say hello.", 16)
        speeds = take_turns(
            {
                name: lambda i, s=server: s.ask(prompts[i % len(prompts)], args.tokens)[1]
                for name, server in servers.items()
            },
            args.rounds,
        )
        words = long.split()[: int(PROMPT_TOKENS / 1.35)]
        reading = take_turns(
            {
                name: lambda i, s=server: PROMPT_TOKENS / s.ask(f"{i} " + " ".join(words), 2)[0]
                for name, server in servers.items()
                if "eagle" not in name and "draft" not in name
            },
            max(3, args.rounds // 2),
        )
    finally:
        for server in servers.values():
            server.stop()
    ratios = {
        f"{over} / {under}": ratio(speeds[over], speeds[under])
        for over, under in RATIOS
        if over in speeds and under in speeds
    }
    found = {
        "machine": machine_line(),
        "bandwidth_gb_s": limit,
        "rounds": args.rounds,
        "tokens_per_s": {name: statistics.median(each) for name, each in speeds.items()},
        "prompt_tokens_per_s": {name: statistics.median(each) for name, each in reading.items()},
        "ratios": ratios,
        "prompt_ratios": {
            f"{over} / {under}": ratio(reading[over], reading[under])
            for over, under in RATIOS
            if over in reading and under in reading
        },
    }
    if args.json:
        print(json.dumps(found, indent=1))
        return
    print(f"{found['machine']}\nreads {limit:.1f} GB/s, n = {args.rounds}\n")
    for name, values in speeds.items():
        prompt = f"{statistics.median(reading[name]):8.0f}" if name in reading else " " * 8
        print(f"{name:28} {statistics.median(values):7.1f} tokens/s  prompt {prompt}")
    for title in ("ratios", "prompt_ratios"):
        print(f"\n{title.replace('_', ' ')}")
        for name, each in found[title].items():  # type: ignore[attr-defined]
            print(f"{name:48} {ratio_text(each)}")


if __name__ == "__main__":
    main()
