"""Plans for these tests."""

from __future__ import annotations

from outdraft.loadgen.endpoint import Request, make_requests
from outdraft.workload.prompt import Message, Planned, Prompt


def planned(
    number: int = 0,
    *,
    max_tokens: int = 6,
    temperature: float = 0.0,
    offset_ns: int | None = None,
) -> Planned:
    message = Message("user", f"write about subject {number}")
    prompt = Prompt(f"p{number}", "chat", (message,), max_tokens)
    return Planned(prompt, temperature, max_tokens, seed=number, offset_ns=offset_ns)


def closed(count: int, **fields: int) -> list[Request]:
    return make_requests([planned(number, **fields) for number in range(count)], arm="off")


def every(gap_s: float, count: int, **fields: int) -> list[Request]:
    gap = round(gap_s * 1e9)
    return make_requests(
        [planned(number, offset_ns=number * gap, **fields) for number in range(count)], arm="off"
    )
