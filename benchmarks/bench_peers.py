"""Whether `outdraft bench` measures what `vllm bench serve` and GuideLLM measure.

    python benchmarks/bench_peers.py --vllm 'path/to/vllm' --guidellm 'path/to/guidellm' \
        [--server outdraft|llamacpp|fake|URL] [--rounds 8] [--requests 40] [--concurrency 1,4] \
        [--output-len 32|16-48]

All three send prompts of the same length to one server and have as many tokens written, in turns
and in another order each round; no prompt is sent twice. Printed are ratios ours / theirs of the
medians of TTFT and of the time per token after the first, and of output tokens a second, with 95 %
bootstrap intervals over rounds, and whether the interval is within 3 %. In their words: vLLM's TPOT
is ours; GuideLLM calls that ITL, and its TPOT is the whole time of an answer over its tokens.

With several at a time ours is measured in two ways: as it is, and with `--all-at-once`, as the
peers do it. They begin all slots together, and their tokens a second include the emptying server at
the end. Where all answers have one length (--output-len 32) their requests stay in step: all
prompts are read at once, and first tokens are late. Answers of several lengths soon come apart.

A server that is started here has a core of its own, the clients have the others.

`fake` is a scripted server, which hardly needs the cores: its times are known. llama.cpp hangs up
on connections that vLLM's client keeps: some of its requests fail there, and a round in which more
than a tenth do is refused. dev/engines/ installs both peers. Both need a tokenizer: --tokenizer is
a folder.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path

from arms import machine_line, ratio, ratio_text
from outdraft.catalog import resolve
from outdraft.loadgen.endpoint import Endpoint
from outdraft.measure.token_counts import token_counts
from outdraft.testing.fake_process import fake_server_process
from outdraft.workload.lengths import (
    Count,
    Lengths,
    parse_lengths,
    with_answers_of,
    with_prompts_of,
)
from outdraft.workload.plan import plan_requests, salted
from outdraft.workload.sets import built_in

ROOT = Path(__file__).parents[1]
OURS, AT_ONCE = "outdraft", "outdraft --all-at-once"
FIGURES = ("ttft_ms", "tpot_ms", "tokens_per_s")
Figures = dict[str, float]
Tool = Callable[[str, Path, int, argparse.Namespace], Figures]
_TRIES = 4
_ANSWERED = 0.9
_NEAR = 0.03
_LENGTH_KEYS = ("max_tokens", "output_tokens", "output_tokens_count")  # ours, vLLM's, GuideLLM's
_HUB_OFF = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


def run_on(cores: Sequence[int]) -> None:
    """This process and those that it starts from now on."""
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)


@contextmanager
def started(words: list[object], url: str) -> Iterator[str]:
    with subprocess.Popen(
        [str(each) for each in words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            while not Endpoint(url).server.is_ready():
                if process.poll() is not None:
                    raise RuntimeError(f"{words[0]} ended with code {process.returncode}")
                time.sleep(0.2)
            yield url
        finally:
            process.terminate()


@contextmanager
def server(name: str, slots: int) -> Iterator[str]:
    run_on([0])
    port = random.randint(20_000, 40_000)
    url = f"http://127.0.0.1:{port}"
    if name == "llamacpp":
        own = ROOT / ".engines/llamacpp/bin/llama-server"
        words = [os.environ.get("OUTDRAFT_LLAMA_SERVER") or own, "--port", port, "--no-webui",
                 "-m", resolve("smollm2-135m").path, "--parallel", slots, "-c", 2048 * slots,
                 "-t", 1, "-tb", 1]  # fmt: skip
        with started(words, url):
            yield url
    elif name == "outdraft":
        words = [sys.executable, "-m", "outdraft", "serve", "--port", port, "--threads", 1,
                 "--method", "off", "--quantization", "int8", "--no-enable-prefix-caching",
                 "--max-num-seqs", slots]  # fmt: skip
        with started(words, url):
            yield url
    elif name == "fake":
        with fake_server_process(ttft_s=0.08, tpot_s=0.012) as url:
            yield url
    else:
        yield name


def write_prompts(path: Path, mark: str, seed: int, args: argparse.Namespace, count: Count) -> None:
    """A file that all three read; every prompt begins with a mark of its own. `seed`: of how long
    answers are."""
    plan = plan_requests(built_in(), mix=((0.0, 1.0),), seed=0)[: args.requests + args.warmup]
    plan = [salted(each, f"{mark}/{at}") for at, each in enumerate(plan)]
    lengths = Lengths(args.input_len, args.input_len)
    made = with_prompts_of(plan, lengths, 0, source=built_in(), count=count, at_most=len(plan))
    made = with_answers_of(made, args.output_len, seed)
    lines = [
        {"prompt": each.prompt.text, **dict.fromkeys(_LENGTH_KEYS, each.max_tokens)}
        for each in made
    ]
    path.write_text("".join(f"{json.dumps(each)}\n" for each in lines))


def ours(
    url: str, prompts: Path, concurrency: int, args: argparse.Namespace, *more: str
) -> Figures:
    words = [sys.executable, "-m", "outdraft", "bench", url, "--prompts", prompts, "--json",
             "--requests", args.requests, "--warmup", args.warmup, "--endpoint", args.endpoint,
             "--concurrency", concurrency, *more]  # fmt: skip
    for _ in range(_TRIES):  # it says itself where the client was kept from running
        found = json.loads(run(words, {}, allowed=(0, 1)))
        if found["valid"]:
            break
    summary = found["summary"]
    assert found["valid"], found["problems"]
    return {
        "ttft_ms": summary["ttft"][0]["value"],
        "tpot_ms": summary["tpot"][0]["value"],
        "tokens_per_s": summary["tokens_per_s"],
    }


def ours_at_once(url: str, prompts: Path, concurrency: int, args: argparse.Namespace) -> Figures:
    return ours(url, prompts, concurrency, args, "--all-at-once")


def vllm(url: str, prompts: Path, concurrency: int, args: argparse.Namespace) -> Figures:
    out = prompts.with_suffix(".vllm.json")
    is_chat = args.endpoint == "chat"
    words = [*shlex.split(args.vllm), "bench", "serve", "--backend",
             "openai-chat" if is_chat else "openai", "--base-url", url,
             "--endpoint", f"/v1/{'chat/' if is_chat else ''}completions",
             "--model", Endpoint(url).server.identify().model, "--tokenizer", args.tokenizer,
             "--dataset-name", "custom", "--dataset-path", prompts,
             "--custom-output-len", -1, "--skip-chat-template",
             "--num-prompts", args.requests, "--disable-shuffle",
             "--num-warmups", args.warmup, "--max-concurrency", concurrency, "--ignore-eos",
             "--temperature", 0, "--disable-tqdm", "--save-result",
             "--result-filename", out]  # fmt: skip
    run(words, _HUB_OFF)
    found = json.loads(out.read_text())
    assert found["completed"] >= _ANSWERED * args.requests, found
    return {
        "ttft_ms": found["median_ttft_ms"],
        "tpot_ms": found["median_tpot_ms"],
        "tokens_per_s": found["output_throughput"],
    }


def guidellm(url: str, prompts: Path, concurrency: int, args: argparse.Namespace) -> Figures:
    out = prompts.with_suffix(".guidellm.json")
    form = f"/v1/{'chat/' if args.endpoint == 'chat' else ''}completions"
    backend = {
        "kind": "openai_http", "target": url, "request_format": form, "http2": False,
        "extras": {"body": {"ignore_eos": True, "temperature": 0}},
    }  # fmt: skip
    words = [*shlex.split(args.guidellm), "run", "--backend", json.dumps(backend),
             "--profile", f"kind=concurrent,streams={concurrency}",
             "--constraint", f"kind=max_requests,count={args.requests}",
             "--data", f"kind=json_file,path={prompts}",
             "--tokenizer", f"kind=hf_auto,model={args.tokenizer}",
             "--output", f"kind=json,path={out}", "--disable-console"]  # fmt: skip
    run(words, _HUB_OFF)
    [found] = json.loads(out.read_text())["benchmarks"]
    metrics = found["metrics"]
    assert metrics["request_totals"]["successful"] >= _ANSWERED * args.requests, metrics
    return {
        "ttft_ms": metrics["time_to_first_token_ms"]["successful"]["median"],
        "tpot_ms": metrics["inter_token_latency_ms"]["successful"]["median"],
        "tokens_per_s": metrics["output_tokens_per_second"]["successful"]["mean"],
    }


def run(words: list[object], env: Mapping[str, str], allowed: tuple[int, ...] = (0,)) -> str:
    done = subprocess.run(
        [str(each) for each in words],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if done.returncode not in allowed:
        raise RuntimeError(f"{words[:4]} ended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def measure(url: str, concurrency: int, args: argparse.Namespace) -> dict[str, list[Figures]]:
    tools: dict[str, Tool] = {OURS: ours}
    tools |= {AT_ONCE: ours_at_once} if concurrency > 1 else {}
    tools |= {"vllm bench serve": vllm} if args.vllm else {}
    tools |= {"GuideLLM": guidellm} if args.guidellm else {}
    plan = plan_requests(built_in()[-9:], mix=((0.0, 1.0),), seed=0)
    counts = token_counts(Endpoint(url, form=args.endpoint), plan)
    results: dict[str, list[Figures]] = {name: [] for name in tools}
    order, draw = list(tools), random.Random(args.seed)
    with tempfile.TemporaryDirectory() as folder:
        for index in range(args.rounds):
            draw.shuffle(order)
            for name in order:
                number = list(tools).index(name)
                prompts = Path(folder) / f"{number}-{index}.jsonl"
                mark = f"{number}{concurrency}/{index}/{args.seed}"
                write_prompts(prompts, mark, 1000 * args.seed + index, args, counts.count)
                found = tools[name](url, prompts, concurrency, args)
                results[name].append(found)
                if args.journal is not None:
                    entry = {
                        "concurrency": concurrency,
                        "tool": name,
                        "seed": args.seed,
                        "round": index,
                    }
                    with args.journal.open("a") as journal:
                        journal.write(f"{json.dumps(entry | found)}\n")
                shown = " ".join(f"{key} {value:.2f}" for key, value in found.items())
                print(f"  round {index + 1} {name:22} {shown}", file=sys.stderr, flush=True)
    return results


def from_journal(path: Path, concurrency: int) -> dict[str, list[Figures]]:
    """The whole rounds of a load, of all runs that wrote to it."""
    rounds: dict[tuple[int, int], dict[str, Figures]] = {}
    for line in path.read_text().splitlines():
        entry = json.loads(line)
        if entry["concurrency"] == concurrency:
            found = rounds.setdefault((entry["seed"], entry["round"]), {})
            found[entry["tool"]] = {each: entry[each] for each in FIGURES}
    tools = max(rounds.values(), key=len)
    whole = [each for each in rounds.values() if len(each) == len(tools)]
    return {name: [each[name] for each in whole] for name in tools}


def nearness(median: float, low: float, high: float) -> str:
    if low >= 1 - _NEAR and high <= 1 + _NEAR:
        return "within 3 %"
    is_far = high < 1 - _NEAR or low > 1 + _NEAR
    return "NOT within 3 %" if is_far else "not known to be within 3 %"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--vllm", help="command of vLLM; without it, it is left out")
    parser.add_argument("--guidellm", help="command of GuideLLM; without it, it is left out")
    parser.add_argument("--tokenizer", default=str(ROOT / ".engines/models/smollm2-6-layers"))
    parser.add_argument("--server", default="outdraft", help="outdraft, llamacpp, fake, or a URL")
    parser.add_argument("--endpoint", default="completions", choices=("chat", "completions"))
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--requests", type=int, default=40)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--input-len", type=int, default=96)
    parser.add_argument("--output-len", type=parse_lengths, default=parse_lengths("32"))
    parser.add_argument("--concurrency", default="1,4")
    parser.add_argument("--seed", type=int, default=0, help="another one sends other prompts")
    parser.add_argument(
        "--journal", type=Path, help="add results to this file, and judge all of it"
    )
    args = parser.parse_args()
    loads = [int(each) for each in args.concurrency.split(",")]
    print(machine_line())
    print(f"{args.server}, {args.endpoint}, {args.input_len} tokens in, {args.output_len} out, "
          f"{args.requests} requests a round, {args.rounds} rounds")  # fmt: skip
    with server(args.server, max(loads)) as url:
        run_on(range(1, os.cpu_count() or 1))
        for load in loads:
            results = measure(url, load, args)
            if args.journal is not None:
                results = from_journal(args.journal, load)
            own = {name: results.pop(name) for name in (OURS, AT_ONCE) if name in results}
            for figure, (name, theirs) in product(FIGURES, results.items()):
                for our_name, each in own.items():
                    pair = ([run[figure] for run in side] for side in (each, theirs))
                    found = ratio(*pair)
                    print(f"concurrency {load}: {figure}, {our_name} / {name}: "
                          f"{ratio_text(found, 3)} n={len(each)}, {nearness(*found)}")  # fmt: skip


if __name__ == "__main__":
    main()
