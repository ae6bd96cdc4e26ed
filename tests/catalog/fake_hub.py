"""A hub of one repository on this machine, and a list of what was asked of it."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

COMMIT = "c" * 40


@contextmanager
def fake_hub(folder: Path, repo: str) -> Iterator[tuple[str, list[str]]]:
    """Yields its address and the log: `GET config.json`, with the number of bytes sent."""
    log: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def do_GET(self) -> None:
            self._answer(with_body=True)

        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            asked = self.rfile.read(length).decode()
            found = [each for each in folder.iterdir() if each.name in asked]
            self._send(200, json.dumps([_listed(each) for each in found]).encode(), {})

        def _answer(self, *, with_body: bool) -> None:
            match = re.match(rf"/{repo}/resolve/[^/]+/(.+)", self.path)
            if self.path.startswith(f"/api/models/{repo}/tree/"):
                listed = [_listed(each) for each in sorted(folder.iterdir())]
                self._send(200, json.dumps(listed).encode(), {})
            elif self.path.startswith(f"/api/models/{repo}"):
                self._send(200, json.dumps(_info(folder, repo)).encode(), {})
            elif match and (folder / match[1]).is_file():
                self._send_file(folder / match[1], with_body=with_body)
            else:
                self._send(404, b"", {"X-Error-Code": "EntryNotFound"}, with_body=with_body)

        def _send_file(self, file: Path, *, with_body: bool) -> None:
            data, total = file.read_bytes(), file.stat().st_size
            headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{_hash(file)}"'}
            wanted = re.match(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
            status = 200
            if wanted:
                first, last = int(wanted[1]), int(wanted[2] or total - 1)
                data, status = data[first : last + 1], 206
                headers["Content-Range"] = f"bytes {first}-{min(last, total - 1)}/{total}"
            log.append(f"{self.command} {file.name} {len(data) if with_body else 0}")
            self._send(status, data, headers, with_body=with_body)

        def _send(
            self, status: int, body: bytes, headers: dict[str, str], *, with_body: bool = True
        ) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if with_body:
                self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", log
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _hash(file: Path) -> str:
    return hashlib.sha1(file.read_bytes()).hexdigest()


def _listed(file: Path) -> dict[str, Any]:
    return {
        "type": "file",
        "path": file.name,
        "size": file.stat().st_size,
        "oid": _hash(file),
    }


def _info(folder: Path, repo: str) -> dict[str, Any]:
    return {
        "id": repo,
        "sha": COMMIT,
        "siblings": [{"rfilename": each.name} for each in sorted(folder.iterdir())],
        "private": False,
        "tags": [],
        "downloads": 0,
    }
