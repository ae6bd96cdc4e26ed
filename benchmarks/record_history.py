"""Records what a real server says of itself, for replays of the watch.

    python benchmarks/record_history.py --out tests/watch/data/smollm2.jsonl.gz

Starts `outdraft serve` with the default model and n-gram drafts, looks at it every few seconds,
and sends it requests with `outdraft bench`: first the ordinary ones, then, after the server was
killed and started again, others. Every look is a line;
the first line has what `bench` measured in each part.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.request import urlopen

from outdraft.observe.reading import Reading, reading_of, to_json

PORT = 8765
URL = f"http://127.0.0.1:{PORT}"
SERVE = ("serve", "--method", "ngram", "--k", "5", "--port", str(PORT))


class Looking:
    def __init__(self, every_s: float) -> None:
        self.readings: list[Reading] = []
        self._every_s = every_s
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def end(self) -> None:
        self._is_over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._is_over.wait(self._every_s):
            try:
                with urlopen(f"{URL}/metrics", timeout=self._every_s) as answer:
                    self.readings.append(reading_of(answer.read().decode(), time.time()))
            except OSError:
                continue  # not there: a gap of the history


def outdraft(*words: str) -> list[str]:
    return [sys.executable, "-m", "outdraft", *words]


def start() -> subprocess.Popen[bytes]:
    server = subprocess.Popen(outdraft(*SERVE), stdout=subprocess.DEVNULL)
    while True:
        try:
            with urlopen(f"{URL}/health", timeout=5):
                return server
        except OSError:
            if server.poll() is not None:
                raise SystemExit("the server ended") from None
            time.sleep(0.5)


def bench(*words: str) -> dict[str, object]:
    """The summary, and when it was."""
    begin = time.time()
    done = subprocess.run(
        outdraft("bench", URL, "--json", *words), capture_output=True, text=True, check=False
    )
    found = json.loads(done.stdout.splitlines()[-1])
    return {"start": begin, "end": time.time(), "summary": found["summary"]}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--every", type=float, default=5.0)
    options.add_argument("--requests", default="120")
    args = options.parse_args()
    server = start()
    looking = Looking(args.every)
    load = ("--requests", args.requests, "--concurrency", "2", "--max-tokens", "96")
    try:
        first = bench(*load, "--temperature", "0.0:70%,0.8:30%")
        time.sleep(2 * args.every)
        server.kill()
        server.wait()
        time.sleep(3 * args.every)
        server = start()
        second = bench(*load, "--seed", "2")
        time.sleep(2 * args.every)
    finally:
        looking.end()
        server.kill()
        server.wait()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(args.out, "wt", compresslevel=9) as file:
        file.write(json.dumps({"every_s": args.every, "bench": [first, second]}) + "\n")
        for reading in looking.readings:
            file.write(json.dumps(to_json(reading), separators=(",", ":")) + "\n")
    print(f"{len(looking.readings)} looks, {args.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
