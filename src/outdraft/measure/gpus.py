"""How busy NVIDIA's GPUs are while a load runs.

Where the server is on this machine, `nvidia-smi` repeats itself in the background; of another one
a dcgm-exporter is asked, if its page is named. Where there is nothing, or it says nothing, there
are no samples, and nothing is said.
"""

import asyncio
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

from outdraft.errors import BackendError, OptionError
from outdraft.measure.gauges import Sample
from outdraft.observe.fetch import fetch_bytes, open_session, page_url, redacted
from outdraft.observe.page import parse_samples

MEMORY, BUSY = "memory_gib", "busy_share"
_FIELDS = "index,memory.used,utilization.gpu"
_FIRST_S, _EVERY_MS = 0.05, 500  # a page is asked for more often at first, for short loads
_END_S = 2.0
_ANSWER_S = 2.0  # within which a page has to come
# Of a dcgm-exporter: its names → ours, and how many of its units are one of ours
_OF_DCGM = {"DCGM_FI_DEV_FB_USED": (MEMORY, 1024), "DCGM_FI_DEV_GPU_UTIL": (BUSY, 100)}


@contextmanager
def polled_gpus(url: str, page: str | None = None) -> Iterator[list[Sample]]:
    """All samples so far of the GPUs beside the server at `url`. `page`: that of its exporter."""
    with _polled_page(page) if page is not None else _polled_here(url) as samples:
        yield samples


def check_page(url: str) -> None:
    """OptionError unless it tells of GPUs."""
    try:
        found = asyncio.run(_ask(url))
    except BackendError as error:
        raise OptionError(
            f"--gpu-metrics {redacted(url)}: {error}; name the page of a dcgm-exporter, such as "
            "http://host:9400"
        ) from None
    if not found:
        names = " or ".join(_OF_DCGM)
        raise OptionError(f"--gpu-metrics {redacted(url)} tells of no {names}; is it an exporter?")


def read_gpus(text: str) -> dict[str, float]:
    """Of an exporter's page. A GPU that several containers share has a line for each of them."""
    found: dict[str, float] = {}
    for name, labels, value in parse_samples(text):
        ours, units = _OF_DCGM.get(name, ("", 1))
        if ours and labels.get("gpu", "").isdecimal():
            key = f"gpu{int(labels['gpu'])}_{ours}"
            found[key] = max(found.get(key, 0.0), value / units)
    return found


async def _ask(url: str) -> dict[str, float]:
    async with open_session() as session:
        body = await fetch_bytes(session, page_url(url), _ANSWER_S)
    return read_gpus(str(body, "utf-8", errors="replace"))


@contextmanager
def _polled_page(url: str) -> Iterator[list[Sample]]:
    samples: list[Sample] = []
    is_over = threading.Event()

    def poll() -> None:
        pause_s = _FIRST_S
        while not is_over.wait(pause_s):
            pause_s = min(2 * pause_s, _EVERY_MS / 1000)
            with suppress(BackendError):  # once in a while it does not answer
                found = asyncio.run(_ask(url))
                now = time.perf_counter_ns()
                samples.extend(Sample(now, *each) for each in found.items())

    thread = threading.Thread(target=poll, name="gpus", daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        is_over.set()
        thread.join(_END_S)


@contextmanager
def _polled_here(url: str) -> Iterator[list[Sample]]:
    samples: list[Sample] = []
    program = shutil.which("nvidia-smi")
    if program is None or not is_here(url):
        yield samples
        return
    form = (f"--query-gpu={_FIELDS}", "--format=csv,noheader,nounits", f"--loop-ms={_EVERY_MS}")
    try:
        process = subprocess.Popen(
            (program, *form), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
    except OSError:
        yield samples
        return
    reader = threading.Thread(
        target=_read, args=(process.stdout, samples), name="gpus", daemon=True
    )
    reader.start()
    try:
        yield samples
    finally:
        process.terminate()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:  # a driver that hangs
            process.kill()
        reader.join(_END_S)
        if process.stdout is not None:
            process.stdout.close()


def is_here(url: str) -> bool:
    """Whether the server is on this machine, as far as its address says so."""
    host = urlsplit(url).hostname or ""
    return host.startswith("127.") or host in ("localhost", "::1", "0.0.0.0", socket.gethostname())


def _read(lines: Iterable[str] | None, samples: list[Sample]) -> None:
    for line in lines or ():
        now = time.perf_counter_ns()
        with suppress(ValueError):  # "[N/A]" where a GPU does not say
            index, used, busy = line.split(",")
            name = f"gpu{int(index)}"
            samples.append(Sample(now, f"{name}_{MEMORY}", float(used) / 1024))
            samples.append(Sample(now, f"{name}_{BUSY}", float(busy) / 100))
