"""How busy NVIDIA's GPUs are while a load runs, where the server is on this machine.

`nvidia-smi` repeats itself in the background. Where it is missing or says nothing, there are no
samples, and nothing is said.
"""

import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

from outdraft.measure.gauges import Sample

MEMORY, BUSY = "memory_gib", "busy_share"
_FIELDS = "index,memory.used,utilization.gpu"
_EVERY_MS = 500
_END_S = 2.0


@contextmanager
def polled_gpus(url: str) -> Iterator[list[Sample]]:
    """All samples so far of the GPUs beside the server at `url`."""
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
