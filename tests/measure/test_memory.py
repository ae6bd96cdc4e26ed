from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import ClassVar

import pytest

from outdraft.measure.memory import forgets, repeats_note
from outdraft.observe import RemoteServer
from outdraft.records import Record


def sent(arm: str, block: int, *prompts: str) -> list[Record]:
    return [
        Record(each, "chat", 0.0, arm, block, index, 0, sent_ns=0, is_warmup=block < 0)
        for index, each in enumerate(prompts)
    ]


def test_prompts_that_one_arm_meets_again() -> None:
    records = [*sent("a", -1, "p", "q"), *sent("b", -1, "p"), *sent("a", 0, "r"),
               *sent("b", 0, "r")]  # fmt: skip
    assert repeats_note(records) == ""
    records += [*sent("a", 1, "p", "s", "s"), *sent("b", 1, "t")]
    assert repeats_note(records).startswith("2 of 6 requests repeat a prompt")
    assert repeats_note(records, {"b"}).startswith("2 of 6 requests")
    assert repeats_note(records, {"a"}).startswith("1 of 6 requests"), "only within its block"
    assert repeats_note(sent("a", -1, "p", "p")) == "", "the warm-up does not count"


class Player(BaseHTTPRequestHandler):
    owner = "outdraft"
    status = 200
    posts: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/v1/models" else 404)
        self.end_headers()
        self.wfile.write(b'{"data": [{"id": "m", "owned_by": "%s"}]}' % type(self).owner.encode())

    def do_POST(self) -> None:
        type(self).posts.append(self.path)
        self.send_response(type(self).status)
        self.end_headers()

    def log_message(self, *args: object) -> None: ...


@pytest.fixture
def player() -> Iterator[tuple[str, type[Player]]]:
    class Own(Player):
        posts: ClassVar[list[str]] = []

    with HTTPServer(("127.0.0.1", 0), Own) as http:
        Thread(target=http.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{http.server_port}", Own
        http.shutdown()


@pytest.mark.parametrize(
    ("owner", "status", "expected", "posts"),
    [
        ("outdraft", 200, True, ["/forget"]),
        ("outdraft", 404, False, ["/forget"]),
        ("outdraft", 401, False, ["/forget"]),
        ("sglang", 200, False, []),
        ("somebody", 200, False, []),
    ],
)
def test_only_our_own_server_is_asked_to_forget(
    player: tuple[str, type[Player]], owner: str, status: int, expected: bool, posts: list[str]
) -> None:
    url, played = player
    played.owner, played.status = owner, status
    assert forgets(RemoteServer(url)) is expected
    assert played.posts == posts
