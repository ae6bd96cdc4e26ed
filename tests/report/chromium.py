"""A headless Chromium, driven over its DevTools socket."""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

NAMES = ("chromium", "chromium-browser", "google-chrome")
_STARTS_WITHIN_S = 30.0
_ANSWERS_WITHIN_S = 20.0


def find_chromium() -> str | None:
    """The path in $OUTDRAFT_CHROMIUM, or a browser on the path."""
    named = os.environ.get("OUTDRAFT_CHROMIUM")
    return named or next(filter(None, map(shutil.which, NAMES)), None)


class Tab:
    """One page. Its requests, and its errors and console messages, are kept."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self._socket = socket
        self._session: str | None = None  # None: the browser itself is spoken to
        self._number = 0

    async def attach(self) -> None:
        """To a new, empty page."""
        target = (await self.call("Target.createTarget", url="about:blank"))["targetId"]
        answer = await self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = answer["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.call(f"{domain}.enable")

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        number = self._number
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        await self._socket.send_json(message)
        while True:
            heard = await self._hear()
            if heard.get("id") == number:
                assert "error" not in heard, (method, heard["error"])
                answer: dict[str, Any] = heard["result"]
                return answer

    async def open(self, url: str) -> None:
        await self.call("Page.navigate", url=url)
        while (await self._hear()).get("method") != "Page.loadEventFired":
            pass

    async def shape(self, width: int, height: int, scheme: str) -> None:
        await self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                        deviceScaleFactor=1, mobile=width < 600)  # fmt: skip
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        await self.call("Emulation.setEmulatedMedia", features=features)

    async def evaluate(self, expression: str) -> Any:
        answer = await self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def screenshot(self, *, whole: bool = False) -> bytes:
        """A PNG of what the window shows, or of the whole page."""
        answer = await self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        return base64.b64decode(answer["data"])

    async def _hear(self) -> dict[str, Any]:
        heard: dict[str, Any] = await asyncio.wait_for(
            self._socket.receive_json(), _ANSWERS_WITHIN_S
        )
        method, params = heard.get("method"), heard.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(str(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled":
            self.complaints.append(str(params["args"]))
        elif method == "Log.entryAdded":
            self.complaints.append(str(params["entry"]))
        return heard


@asynccontextmanager
async def tab_of(binary: str) -> AsyncIterator[Tab]:
    """A browser with an empty profile of its own, gone afterwards."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = await asyncio.create_subprocess_exec(
            binary, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--no-first-run", "--disable-background-networking", "--disable-extensions",
            "--hide-scrollbars", "--remote-debugging-port=0", f"--user-data-dir={profile}",
            "about:blank",
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        try:
            address = await asyncio.wait_for(_address(Path(profile), process), _STARTS_WITHIN_S)
            async with (
                aiohttp.ClientSession() as client,
                client.ws_connect(address, max_msg_size=0) as socket,
            ):
                tab = Tab(socket)
                await tab.attach()
                yield tab
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()


async def _address(profile: Path, process: asyncio.subprocess.Process) -> str:
    file = profile / "DevToolsActivePort"
    while not file.exists() or len(file.read_text().split()) < 2:
        assert process.returncode is None, f"the browser ended with code {process.returncode}"
        await asyncio.sleep(0.05)
    port, path = file.read_text().split()
    return f"ws://127.0.0.1:{port}{path}"
