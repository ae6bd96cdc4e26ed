"""What a watch costs: CPU of 50 replicas that are read every 5 s, and memory over a day.

    python benchmarks/watch_cost.py [--engines 1] [--replicas 50] [--day-replicas 10]

Pages are those of vLLM 0.32.0 (`tests/observe/vllm_0_32.txt`), 434 samples of 634 lines for each of
`--engines` engines, with counters that grow; another process serves them. CPU is the time that the
process had, not that of the clock: others may use the machine.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from outdraft.observe.fetch import open_session
from outdraft.observe.reading import Reading, growth, read_page, reading_of
from outdraft.watch.asking import Asking
from outdraft.watch.history import Histories, History
from outdraft.watch.history_json import compact, history_to_json
from outdraft.watch.replicas import name_replicas
from outdraft.watch.scraper import Scraper

PAGE = Path(__file__).parent.parent / "tests" / "observe" / "vllm_0_32.txt"
_MIB = 1 << 20


class GrowingPage:
    """A server's page, whose counters grow with time and whose gauges stay."""

    def __init__(self, engines: int) -> None:
        self._lines: list[tuple[str, float, float]] = []  # beginning, value, growth a second
        for line in PAGE.read_text().splitlines():
            series, _, value = line.rpartition(" ")
            if line.startswith("#"):
                self._lines.append((line, 0.0, -1.0))
                continue
            name = series.partition("{")[0]
            counts = name.endswith(("_total", "_sum", "_count", "_bucket"))
            rate = float(value) / 10 if counts else 0.0
            for engine in range(engines if 'engine="0"' in series else 1):
                text = series.replace('engine="0"', f'engine="{engine}"')
                self._lines.append((text, float(value), rate))

    def at(self, seconds: float) -> str:
        return "".join(
            f"{text}\n" if rate < 0 else f"{text} {value + rate * seconds}\n"
            for text, value, rate in self._lines
        )

    @property
    def num_lines(self) -> int:
        return len(self._lines)


async def serve(engines: int) -> None:
    """Writes its port, then answers until its input ends."""
    page, start = GrowingPage(engines), time.monotonic()
    rendered = (-1, b"")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal rendered
        head = await reader.readuntil(b"\r\n\r\n")
        second = int(time.monotonic() - start)
        if rendered[0] != second:
            rendered = second, page.at(second).encode()
        body = b'{"version": "0.32.0"}' if b"/version " in head else rendered[1]
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=200)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)


async def watch(url: str, num_replicas: int, interval_s: float, seconds: float) -> dict[str, float]:
    replicas = name_replicas([f"{url}/{number}/metrics" for number in range(num_replicas)])
    histories = Histories(interval_s)
    read = failed = 0
    async with open_session() as session:
        scraper = Scraper(Asking(session).fetch, interval_s)
        for each in (
            await scraper.scrape(replicas)
        ).values():  # the versions, the first connections
            assert isinstance(each, Reading), each
        start, cpu = time.monotonic(), time.process_time()
        for step in range(int(seconds / interval_s)):
            await asyncio.sleep(max(start + step * interval_s - time.monotonic(), 0))
            found = await scraper.scrape(replicas)
            histories.update(found, time.time())
            num_read = sum(isinstance(each, Reading) for each in found.values())
            read, failed = read + num_read, failed + len(found) - num_read
        await asyncio.sleep(max(start + seconds - time.monotonic(), 0))
        cpu, wall = time.process_time() - cpu, time.monotonic() - start
    return {
        "replicas": num_replicas,
        "readings": read,
        "failed": failed,
        "seconds": wall,
        "cpu_percent_of_a_core": 100 * cpu / wall,
        "cpu_ms_per_reading": 1000 * cpu / max(read, 1),
    }


def parts_of_a_reading(page: GrowingPage, repeats: int = 200) -> dict[str, float]:
    """Milliseconds of CPU."""
    text = page.at(10)
    one, two = reading_of(text, 0.0), reading_of(page.at(15), 5.0)
    history = History(5.0)
    for step in range(2_000):
        history.add(_reading(two, step))

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


def _reading(reading: Reading, step: int, interval_s: float = 5.0) -> Reading:
    """Counters grow with each step, differently by name."""
    page = {
        key: value * step if "_perc" not in key and "num_requests" not in key else value
        for key, value in reading.page.items()
    }
    page["process_start_time_seconds"] = 1.0
    return replace(read_page(page, step * interval_s), page={})


def day(page: GrowingPage, num_replicas: int) -> Iterator[tuple[float, float]]:
    """(hours, MiB): two days with a look every minute fill the histories, then a day of 17,280."""
    first = reading_of(page.at(10), 0.0)
    histories = Histories(5.0)

    def look(at: float, step: int, interval_s: float) -> None:
        reading = replace(_reading(first, step), at=at)
        histories.update({str(n): reading for n in range(num_replicas)}, at, interval_s)

    before = _resident_mib()
    for minute in range(2 * 1440):
        look(60.0 * minute, 12 * minute, 60.0)
    yield 0.0, _resident_mib() - before
    start = 2 * 86_400.0
    for step in range(17_280):
        look(start + 5.0 * step, 12 * 2 * 1440 + step, 5.0)
        if step % 2_880 == 2_879:
            yield (step + 1) / 720, _resident_mib() - before
    written = len(compact(history_to_json(histories["0"])))
    print(f"a history as JSON: {written / 1000:.0f} kB", file=sys.stderr)


def _resident_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / _MIB


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicas", type=int, default=50)
    parser.add_argument("--interval", type=float, default=5.0)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--engines", type=int, default=3, help="1: 634 lines, 3: about 1,500")
    parser.add_argument("--day-replicas", type=int, default=10)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        asyncio.run(serve(args.engines))
        return
    page = GrowingPage(args.engines)
    print(f"a page: {page.num_lines} lines, {len(page.at(10)) / 1000:.0f} kB")
    result: dict[str, object] = {"lines": page.num_lines, **parts_of_a_reading(page)}
    words = [sys.executable, __file__, "--serve", "--engines", str(args.engines)]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as served:
        assert served.stdout is not None
        url = f"http://127.0.0.1:{served.stdout.readline().strip()}"
        result |= asyncio.run(watch(url, args.replicas, args.interval, args.seconds))
        served.communicate()
    if args.day_replicas:
        memory = dict(day(page, args.day_replicas))
        result["mib_by_hour"] = {f"{hour:g}": round(mib, 1) for hour, mib in memory.items()}
        result["kib_per_replica"] = round(1024 * max(memory.values()) / args.day_replicas)
    for name, value in result.items():
        print(f"{name:26} {value:.3g}" if isinstance(value, float) else f"{name:26} {value}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
