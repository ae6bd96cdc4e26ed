"""A dcgm-exporter's page, served."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_FIRST = 'gpu="0",UUID="GPU-aa",pci_bus_id="00000000:07:00.0",device="nvidia0",Hostname="box"'
_SECOND = 'gpu="1",UUID="GPU-bb",pci_bus_id="00000000:0A:00.0",device="nvidia1",Hostname="box"'
PAGE = f"""\
# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).
# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{{{_FIRST},container="one",pod="one-0"}} 93
DCGM_FI_DEV_GPU_UTIL{{{_FIRST},container="two",pod="two-0"}} 93
DCGM_FI_DEV_GPU_UTIL{{{_SECOND}}} 0
# HELP DCGM_FI_DEV_FB_FREE Framebuffer memory free (in MiB).
# TYPE DCGM_FI_DEV_FB_FREE gauge
DCGM_FI_DEV_FB_FREE{{{_FIRST}}} 9879
# HELP DCGM_FI_DEV_FB_USED Framebuffer memory used (in MiB).
# TYPE DCGM_FI_DEV_FB_USED gauge
DCGM_FI_DEV_FB_USED{{{_FIRST}}} 71680
DCGM_FI_DEV_FB_USED{{{_SECOND}}} 2048
DCGM_FI_DEV_GPU_UTIL{{Hostname="no number"}} 12
"""


@contextmanager
def served_page(text: str) -> Iterator[str]:
    """The address of a server whose /metrics is this page."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = text.encode()
            self.send_response(200 if self.path == "/metrics" else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
