"""Is this version as fast as another one, and does it write the same texts?

    python benchmarks/versions.py OTHER-CHECKOUT [--starts 4] [--rounds 4] [--only off,int8]

Both versions run at the same time, each in processes of its own, and take turns: only one of them
computes at a moment. Which process starts first matters (up to 8 % on a virtual machine, whatever
the version), so all processes are started several times, in alternating order. Through the Python
API: off, int8, ngram and the shipped drafts with one stream, and off with 8 streams. Over HTTP: a
server of each version, 1 and 16 streams. Every figure is a ratio of tokens per second, this
version / the other, with a 95 % bootstrap interval over rounds. Texts are compared token by token.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from arms import machine_line, ratio, ratio_text, take_turns
from http_cost import http_arm

HERE = Path(__file__).parent.parent
# Settings of an arm: target quantization, method, draft, k, streams.
ARMS: dict[str, tuple[str, str, str | None, int, int]] = {
    "off": ("none", "off", None, 5, 1),
    "off 8 streams": ("none", "off", None, 5, 8),
    "int8": ("int8", "off", None, 5, 1),
    "ngram k=5": ("none", "ngram", None, 5, 1),
    "draft_model k=5": ("none", "draft_model", "smollm2-135m-draft", 5, 1),
    "eagle k=5": ("none", "eagle", "smollm2-135m-eagle", 5, 1),
}

# Runs in both versions, so it uses nothing but the public API.
WORKER = """
import json, sys, time, torch
from outdraft import SamplingParams, Speculation, load_engine
arms, threads, tokens = json.loads(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
torch.set_num_threads(threads)
engines = {}
for quantization, method, draft, k, streams in arms.values():
    if (quantization, method, draft) not in engines:
        packed = "int8" if draft else "none"
        speculation = Speculation(method=method, draft=draft, k=k, quantization=packed)
        engines[quantization, method, draft] = load_engine(
            speculation=speculation, quantization=quantization, kv_cache_bytes=1 << 28
        )
print("ready", flush=True)
for line in sys.stdin:
    name, prompts = json.loads(line)
    quantization, method, draft, k, streams = arms[name]
    engine = engines[quantization, method, draft]
    engine.forget()
    chats = [engine.tokenizer.apply_chat([{"role": "user", "content": each}]) for each in prompts]
    params = SamplingParams(max_tokens=tokens, ignore_eos=True)
    start = time.perf_counter()
    done = engine.generate(chats, params)
    seconds = time.perf_counter() - start
    texts = [each.tokens for each in done]
    print(json.dumps([sum(map(len, texts)) / seconds, texts]), flush=True)
"""
PROMPTS = (
    "Explain in simple words why the sea is salty.",
    "Repeat this sentence three times: the old pipe under the courtyard is being replaced.",
    "Write a Python function that counts the words of a file.",
    "What should I think about before buying a used bicycle?",
    "List five uses for a brick, one on each line.",
    "Write a short story about a lighthouse keeper who finds a map.",
)


HTTP = {"HTTP 1 stream": 1, "HTTP 16 streams": 16}  # streams


class Version:
    """One checkout: a process with its engines, and a server."""

    def __init__(self, checkout: Path, names: list[str], threads: int, tokens: int) -> None:
        self._environment = os.environ | {"PYTHONPATH": str(checkout / "src")}
        arms = json.dumps({name: arm for name, arm in ARMS.items() if name in names})
        command = [sys.executable, "-c", WORKER, arms, str(threads), str(tokens)]
        self._worker = self._start(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE)
        assert self._worker.stdout is not None
        if self._worker.stdout.readline() != "ready\n":
            raise SystemExit(f"{checkout} does not start")
        command = [sys.executable, "-m", "outdraft", "serve", "--port", "0"]
        command += ["--method", "off", "--threads", str(threads)]
        self._server = self._start(command, stderr=subprocess.PIPE)
        assert self._server.stderr is not None
        line = next(each for each in self._server.stderr if " at http://" in each)
        self.url = line.split(" at ")[1].strip()

    def _start(self, command: list[str], **pipes: int) -> subprocess.Popen[str]:
        return subprocess.Popen(command, env=self._environment, text=True, **pipes)  # type: ignore[call-overload,no-any-return]

    def generate(self, arm: str, prompts: list[str]) -> tuple[float, list[list[int]]]:
        assert self._worker.stdin is not None
        assert self._worker.stdout is not None
        print(json.dumps([arm, prompts]), file=self._worker.stdin, flush=True)
        speed, texts = json.loads(self._worker.stdout.readline())
        return speed, texts

    def close(self) -> None:
        for process in (self._worker, self._server):
            process.terminate()
            process.wait()


class Arm:
    """One arm of one version; keeps the texts that it wrote."""

    def __init__(self, version: Version, name: str, tokens: int) -> None:
        self._version = version
        self._name = name
        self._http = http_arm(version.url, HTTP[name], tokens) if name in HTTP else None
        self.texts: list[list[list[int]]] = []

    def __call__(self, index: int) -> float:
        if self._http is not None:
            return self._http(index)
        prompts = [
            f"{index}-{stream}: {PROMPTS[(index + stream) % len(PROMPTS)]}"
            for stream in range(ARMS[self._name][4])
        ]
        speed, texts = self._version.generate(self._name, prompts)
        self.texts.append(texts)
        return speed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("other", type=Path, help="a checkout of the other version")
    parser.add_argument("--starts", type=int, default=4, help="even: each is first as often")
    parser.add_argument("--rounds", type=int, default=4, help="after each start")
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", help="names of arms, with commas between")
    args = parser.parse_args()
    names = [each for each in (*ARMS, *HTTP) if args.only is None or each in args.only.split(",")]
    speeds: dict[str, dict[str, list[float]]] = {name: {"this": [], "other": []} for name in names}
    num_texts = num_different = 0
    for start in range(args.starts):
        checkouts = {"this": HERE, "other": args.other}
        order = list(checkouts.items())[:: -1 if start % 2 else 1]
        versions = {name: Version(path, names, args.threads, args.tokens) for name, path in order}
        try:
            for name in names:
                pair = {key: Arm(each, name, args.tokens) for key, each in versions.items()}
                take_turns(pair, 1)  # warm-up
                measured = take_turns(pair, args.rounds, seed=start)
                for key in speeds[name]:
                    speeds[name][key] += measured[key]
                both = zip(pair["this"].texts, pair["other"].texts, strict=True)
                different = [this != other for this, other in both]
                num_texts, num_different = (
                    num_texts + len(different),
                    num_different + sum(different),
                )
        finally:
            for each in versions.values():
                each.close()
    for name in names:
        this, other = speeds[name]["this"], speeds[name]["other"]
        print(f"  {name:16} {ratio_text(ratio(this, other), 3)}  n={len(this)}")
    print(f"  texts: {num_different} of {num_texts} differ")
    print(machine_line())


if __name__ == "__main__":
    main()
