"""What a running server says of itself: its /metrics page, its engine, its counters.

server = RemoteServer("http://localhost:8000")
print(server.identify(), read_acceptance(server.metrics()))
"""

from outdraft.observe.counters import (
    Written,
    read_acceptance,
    read_gauges,
    read_kv_size,
    read_step_seconds,
    read_written,
)
from outdraft.observe.page import Page, page_difference, parse_page
from outdraft.observe.server import RemoteServer

__all__ = [
    "Page",
    "RemoteServer",
    "Written",
    "page_difference",
    "parse_page",
    "read_acceptance",
    "read_gauges",
    "read_kv_size",
    "read_step_seconds",
    "read_written",
]
