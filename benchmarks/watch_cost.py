"""What a watch costs: CPU of a whole `outdraft watch` of 50 replicas every 5 s, and memory over a
day of looks.

    python benchmarks/watch_cost.py [--engines 1] [--replicas 50] [--plain 10] [--day-replicas 10]
    python benchmarks/watch_cost.py --engines 1 --replicas 0 --day-replicas 50   # the day alone

Pages are those of vLLM 0.32.0 (`tests/observe/vllm_0_32.txt`), 434 samples of 634 lines for each of
`--engines` engines, with counters that grow; another process serves them. The watch is a process of
its own with two days of histories in its state, a page that is asked for at every look and metrics
that are asked for every 15 s. No benefit is clear, which costs most, and 1 to 8 requests run at a
time, by replica and minute: each load is weighed. CPU is the time that the process had, not that of
the clock: others may use the machine.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from outdraft.observe.reading import Reading, growth, reading_of
from outdraft.watch.history import History
from outdraft.watch.history_json import compact, history_to_json
from outdraft.watch.replicas import name_replicas
from outdraft.watch.watch import Watch, WatchRules

PAGE = Path(__file__).parent.parent / "tests" / "observe" / "vllm_0_32.txt"
DAYS_S = 2 * 86_400.0  # that a watch remembers
INTERVAL_S = 5.0
_METRICS_EVERY = 3  # looks
_WARM_UP_S = 20.0
_MIB = 1 << 20
_RUNNING = 123454321.0  # stands for the load on a page that several replicas share


def running_at(number: int, seconds: float) -> int:
    """Requests at a time on one of the replicas."""
    return 1 + (3 * number + int(seconds // 60)) % 8


class GrowingPage:
    """A server's page, whose counters grow with time. Of its gauges only the load changes."""

    def __init__(self, engines: int, *, speculates: bool = True) -> None:
        self._lines: list[tuple[str, float, float]] = []  # beginning, value, growth a second
        for line in PAGE.read_text().splitlines():
            if "spec_decode" in line and not speculates:
                continue
            series, _, written = line.rpartition(" ")
            if line.startswith("#"):
                self._lines.append((line, 0.0, -1.0))
                continue
            name = series.partition("{")[0]
            # It was idle when it was recorded, and all its drafts had been right.
            value = float(written) * (0.6 if "_accepted_tokens" in name else 1.0)
            value = _RUNNING if name == "vllm:num_requests_running" else value
            counts = name.endswith(("_total", "_sum", "_count", "_bucket"))
            rate = value / 10 if counts else 0.0
            for engine in range(engines if 'engine="0"' in series else 1):
                text = series.replace('engine="0"', f'engine="{engine}"')
                self._lines.append((text, value, rate))

    def at(self, seconds: float) -> str:
        return "".join(
            f"{text}\n" if rate < 0 else f"{text} {value + rate * seconds}\n"
            for text, value, rate in self._lines
        )

    @property
    def num_lines(self) -> int:
        return len(self._lines)


async def serve(engines: int, num_plain: int) -> None:
    """Writes its port, then answers until its input ends. Counters are those of two days."""
    pages = GrowingPage(engines), GrowingPage(engines, speculates=False)
    start = time.monotonic()
    rendered: dict[bool, tuple[int, bytes]] = {}

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        number = int(head.split(b"/", 2)[1])
        is_plain = number < num_plain
        second = int(time.monotonic() - start)
        if rendered.get(is_plain, (-1, b""))[0] != second:
            rendered[is_plain] = second, pages[is_plain].at(DAYS_S + second).encode()
        load = str(running_at(number, DAYS_S + second)).encode()
        body = rendered[is_plain][1].replace(str(_RUNNING).encode(), load)
        body = b'{"version": "0.32.0"}' if b"/version " in head else body
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=200)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)


class Past:
    """Readings of earlier moments, parsed once."""

    def __init__(self, engines: int, num_replicas: int, num_plain: int, url: str = "") -> None:
        urls = [f"{url or 'http://a'}/{number}/metrics" for number in range(num_replicas)]
        self.urls = urls
        self._names = [each.name for each in name_replicas(urls)]
        self._num_plain, self._engines = num_plain, engines
        self._pages = GrowingPage(engines), GrowingPage(engines, speculates=False)

    def look(self, at: float, seconds: float) -> dict[str, Reading]:
        """`seconds`: of the counters."""
        own, plain = (replace(reading_of(page.at(seconds), at), page={}, version="0.32.0")
                      for page in self._pages)  # fmt: skip
        found = {}
        for number, name in enumerate(self._names):
            each = plain if number < self._num_plain else own
            load = {"running_requests": float(running_at(number, seconds) * self._engines)}
            found[name] = replace(each, gauges={**each.gauges, **load})
        return found

    def fill(self, watch: Watch, now: float) -> None:
        """Two days with a look every minute, until a minute ago."""
        for minute in range(1, int(DAYS_S / 60)):
            at = now - DAYS_S + 60.0 * minute
            watch.histories.update(self.look(at, 60.0 * minute), at, 60.0)


def watch_cost(args: argparse.Namespace, url: str) -> dict[str, object]:
    """Of a process that began long ago."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        past = Past(args.engines, args.replicas, args.plain, url)
        (folder / "targets").write_text("\n".join(past.urls))
        rules, now = WatchRules(interval_s=args.interval), time.time()
        watch = Watch(rules, now=now, state=folder / "state.json")
        past.fill(watch, now)
        watch.close(now)
        more = () if args.baseline is None else ("--baseline", str(args.baseline.resolve()))
        with _watching(folder, args.interval, *more) as (pid, page):
            _look_in(page, _WARM_UP_S, args.interval)
            cpu, start, before = _cpu_s(pid), time.monotonic(), _resident_mib(pid)
            _look_in(page, args.seconds, args.interval)
            wall, cpu, after = time.monotonic() - start, _cpu_s(pid) - cpu, _resident_mib(pid)
            shown = json.loads(_get(f"{page}/snapshot.json"))
        states = [each["state"] for each in shown["replicas"]]
        looks = args.replicas * wall / args.interval
        benefits = sum(each["benefit"] is not None for each in shown["replicas"])
    return {
        "replicas": args.replicas,
        "up": states.count("up"),
        "with_a_benefit": benefits,
        "seconds": wall,
        "cpu_percent_of_a_core": 100 * cpu / wall,
        "cpu_ms_per_replica_and_look": 1000 * cpu / looks,
        "resident_mib": f"{before:.0f} → {after:.0f}",
    }


@contextmanager
def _watching(folder: Path, interval_s: float, *more: str) -> Iterator[tuple[int, str]]:
    """Its process and the address of its page."""
    words = [sys.executable, "-m", "outdraft", "watch", "--targets", "targets", "--state",
             "state.json", "--events", "events.jsonl", "--ui", "--listen", "127.0.0.1:0",
             "--interval", f"{interval_s:g}s", *more]  # fmt: skip
    with (folder / "said").open("w") as said:
        process = subprocess.Popen(words, cwd=folder, stderr=said, stdout=subprocess.DEVNULL)
        try:
            while "page at " not in (told := (folder / "said").read_text()):
                assert process.poll() is None, told
                time.sleep(0.2)
            page = told.partition("page at ")[2].split()[0]
            while not _is_there(f"{page}/metrics"):  # until the first look is over
                assert process.poll() is None
                time.sleep(0.2)
            yield process.pid, page
        finally:
            process.terminate()
            process.wait()


def _look_in(page: str, seconds: float, interval_s: float) -> None:
    """As a browser does with the page, and a Prometheus with the metrics."""
    end, number = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        time.sleep(min(interval_s, max(end - time.monotonic(), 0)))
        _get(f"{page}/")
        if number % _METRICS_EVERY == 0:
            _get(f"{page}/metrics")
        number += 1


def _is_there(url: str) -> bool:
    try:
        _get(url)
    except urllib.error.HTTPError:
        return False
    return True


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=30) as answer:
        body: bytes = answer.read()
    return body


def parts_of_a_reading(page: GrowingPage, repeats: int = 200) -> dict[str, object]:
    """Milliseconds of CPU."""
    text = page.at(10)
    one, two = reading_of(text, 0.0), reading_of(page.at(15), 5.0)
    history = History(INTERVAL_S)
    for step in range(2_000):
        counters = {name: value * step for name, value in two.counters.items()}
        history.add(replace(two, counters=counters, at=step * INTERVAL_S, page={}))

    def cost(work: Callable[[], object]) -> float:
        start = time.process_time()
        for _ in range(repeats):
            work()
        return 1000 * (time.process_time() - start) / repeats

    return {
        "parse_ms": cost(lambda: reading_of(text, 0.0)),
        "growth_ms": cost(lambda: growth(one, two)),
        "window_of_10_minutes_ms": cost(lambda: history.window(600, 10_000.0)),
        "window_of_a_day_ms": cost(lambda: history.window(86_400, 10_000.0)),
    }


def day(args: argparse.Namespace) -> Iterator[tuple[float, float]]:
    """(hours, MiB) of the whole watch without its questions: two days fill the histories, then
    17,280 looks, with state and events on the disk."""
    past = Past(args.engines, args.day_replicas, max(args.day_replicas // 5, 1))
    begin, before = 1_800_000_000.0, _resident_mib(os.getpid())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        watch = Watch(
            WatchRules(), now=begin, events=folder / "events.jsonl", state=folder / "state.json"
        )
        past.fill(watch, begin)
        yield 0.0, _resident_mib(os.getpid()) - before
        num_looks = int(86_400 / INTERVAL_S)
        spent_s = 0.0
        for step in range(num_looks):
            passed_s = INTERVAL_S * step
            found = past.look(begin + passed_s, DAYS_S + passed_s)
            start = time.process_time()
            watch.look(found, begin + passed_s)
            spent_s += time.process_time() - start
            if (step + 1) % (num_looks // 6) == 0:
                yield (step + 1) * INTERVAL_S / 3600, _resident_mib(os.getpid()) - before
        written = len(compact(history_to_json(next(watch.histories.items())[1])))
        print(f"a look: {1000 * spent_s / num_looks:.1f} ms of CPU")
        print(f"a history as JSON: {written / 1000:.0f} kB")
        watch.close(begin + 86_400)


def _resident_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / _MIB


def _cpu_s(pid: int) -> float:
    """Of all its threads, in user and system mode."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicas", type=int, default=50)
    parser.add_argument("--plain", type=int, default=10, help="of them, that do not speculate")
    parser.add_argument("--baseline", type=Path, help="folder of `outdraft tune`, for its costs")
    parser.add_argument("--interval", type=float, default=INTERVAL_S)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--engines", type=int, default=3, help="1: 634 lines, 3: about 1,500")
    parser.add_argument("--day-replicas", type=int, default=10)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        asyncio.run(serve(args.engines, args.plain))
        return
    page = GrowingPage(args.engines)
    print(f"a page: {page.num_lines} lines, {len(page.at(10)) / 1000:.0f} kB")
    result: dict[str, object] = {"lines": page.num_lines, **parts_of_a_reading(page)}
    if args.day_replicas:
        memory = {}
        for hour, mib in day(args):
            memory[hour] = mib
            print(f"hour {hour:g}: {mib:.1f} MiB", flush=True)
        result["mib_by_hour"] = {f"{hour:g}": round(mib, 1) for hour, mib in memory.items()}
        result["kib_per_replica"] = round(1024 * max(memory.values()) / args.day_replicas)
    if args.replicas:
        result |= measured_cost(args)
    for name, value in result.items():
        print(f"{name:28} {value:.3g}" if isinstance(value, float) else f"{name:28} {value}")
    print(json.dumps(result))


def measured_cost(args: argparse.Namespace) -> dict[str, object]:
    """Of a watch whose replicas another process serves."""
    words = [sys.executable, __file__, "--serve", "--engines", str(args.engines), "--plain",
             str(args.plain)]  # fmt: skip
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as served:
        assert served.stdout is not None
        url = f"http://127.0.0.1:{served.stdout.readline().strip()}"
        found = watch_cost(args, url)
        served.communicate()
    return found


if __name__ == "__main__":
    main()
