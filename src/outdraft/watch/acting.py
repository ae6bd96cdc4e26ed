"""Does what `--act` decided: tells our server, or writes a configuration and runs a command."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import aiohttp
from yarl import URL

from outdraft.backends.backend import Serving
from outdraft.emit import nearest_config, write_form
from outdraft.errors import OutdraftError
from outdraft.observe.fetch import page_url
from outdraft.speculation import OFF, Speculation
from outdraft.watch.actions import OURS, Deed, Passing
from outdraft.watch.findings import Action
from outdraft.watch.limits import ByLoad, ServerLimits, loads_of, lowered, without_loads
from outdraft.whole_file import write_json, write_text

_LIMIT_S = 10.0
_COMMAND_LIMIT_S = 600.0
_MAX_ANSWER = 1 << 16
_SECRETS = ("OUTDRAFT_ADMIN_KEY", "OUTDRAFT_API_KEY", "OUTDRAFT_WEBHOOK_SECRET")
_AGAIN = frozenset({408, 425, 429, *range(500, 600)})  # answers that may be others in minutes
_MANY = 1 << 16  # more texts at a time than any server writes


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a server that somebody else's engine runs, from `tune`."""

    speculation: Speculation
    serving: Callable[[str], Serving]  # of an engine


@dataclass(frozen=True, slots=True)
class Acting:
    """Every call returns what went wrong, or an empty text; nothing is raised, no URL is told."""

    folder: Path  # for configurations
    session: aiohttp.ClientSession
    admin_key: str | None = field(default=None, repr=False)
    command: tuple[str, ...] = ()
    known: Known | None = None
    command_limit_s: float = _COMMAND_LIMIT_S

    async def do(self, deed: Deed, engine: str | None, url: str) -> str:
        if engine == OURS:
            limits = deed.wanted_limits()
            if limits is None:
                return f"our server does not switch speculation by {deed.part!r}"
            return await self._tell(url, limits.body())
        return await self._configure(deed, engine or "", is_back=False)

    async def undo(self, deed: Deed, engine: str | None, url: str) -> str:
        if engine == OURS:
            return await self._tell(url, (deed.limits or ServerLimits()).body())
        return await self._configure(deed, engine or "", is_back=True)

    async def limits(self, url: str) -> tuple[ServerLimits | None, str]:
        """Of our server, as they are now, and what went wrong."""
        said, problem = await self._ask("GET", url)
        if problem:
            return None, problem
        try:
            return ServerLimits.shown(json.loads(said)), ""
        except (ValueError, LookupError, TypeError, AttributeError):
            return None, "it does not say which limits it has"

    async def _tell(self, url: str, body: dict[str, object]) -> str:
        return (await self._ask("POST", url, body))[1]

    async def _ask(
        self, method: str, url: str, body: dict[str, object] | None = None
    ) -> tuple[str, str]:
        """What our server's admin endpoint says, and what went wrong."""
        if self.admin_key is None:
            return "", Passing("no --admin-key was given")  # the next watch may have one
        headers = {"Authorization": f"Bearer {self.admin_key}"}
        address = URL(page_url(url, "/admin/speculation")).with_user(None)
        try:
            async with self.session.request(
                method,
                address,
                json=body,
                headers=headers,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=_LIMIT_S),
            ) as answer:
                said = str(await answer.content.read(_MAX_ANSWER), "utf-8", errors="replace")
                if answer.status == 200:
                    return said, ""
                problem = f"http {answer.status}{_message(said)}"
                return "", Passing(problem) if answer.status in _AGAIN else problem
        except TimeoutError:
            return "", Passing(f"no answer within {_LIMIT_S:g} s")
        except (aiohttp.ClientError, OSError, ValueError) as failure:
            return "", Passing(f"it could not be reached ({type(failure).__name__})")

    async def _configure(self, deed: Deed, engine: str, *, is_back: bool) -> str:
        """Writes what the server should be started with, then runs the command."""
        name = re.sub(r"[^\w.-]", "_", deed.replica) or "all"
        try:
            if self.known is None:
                path = self.folder / f"{name}.json"
                wanted = {"action": "KEEP", "k": None, "part": ""} if is_back else _plain(deed)
                await asyncio.to_thread(write_json, path, {"replica": deed.replica, **wanted})
            else:
                path = self.folder / f"{name}.sh"
                meant = self.known.speculation if is_back else changed(self.known.speculation, deed)
                config = nearest_config(engine, meant, self.known.serving(engine), k=meant.k)
                await asyncio.to_thread(write_text, path, write_form(config, "cli"))
        except OutdraftError as failure:
            return str(failure)
        if not self.command:
            return ""
        words = "KEEP" if is_back else deed.words
        return await self._run(deed, path, words)

    async def _run(self, deed: Deed, path: Path, words: str) -> str:
        """Without a shell: a replica's name is one word, whatever is in it. Without our keys."""
        filled = {"{config}": str(path), "{replica}": deed.replica}
        argv = [filled.get(word, word) for word in self.command]
        env = {
            **{key: value for key, value in os.environ.items() if key not in _SECRETS},
            "OUTDRAFT_ADVICE": words,
            "OUTDRAFT_REPLICA": deed.replica,
            "OUTDRAFT_CONFIG": str(path),
            "OUTDRAFT_K": "" if deed.k is None else str(deed.k),
        }
        env = {key: value for key, value in env.items() if "\0" not in value}
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                env=env,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )
        except (OSError, ValueError) as failure:
            return f"{argv[0]} cannot be run ({getattr(failure, 'strerror', None) or failure})"
        try:
            async with asyncio.timeout(self.command_limit_s):
                code = await process.wait()
        except TimeoutError:
            return Passing(f"{argv[0]} took more than {self.command_limit_s:g} s and was ended")
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        return "" if code == 0 else f"{argv[0]} ended with code {code}"


def changed(speculation: Speculation, deed: Deed) -> Speculation:
    """What the deed makes of it: a schedule that is there is lowered, never lifted."""
    if deed.action is Action.TURN_OFF or speculation.is_off:
        return OFF
    before = tuple((start, min(k, speculation.k)) for start, _, k in speculation.schedule)
    before = before or ((1, speculation.k),)
    if deed.action is Action.LOWER_K and deed.k is not None:
        return _with_ks(speculation, lowered(before, deed.k))
    loads = loads_of(deed.part)
    if loads is None:
        raise OutdraftError(f"no engine has a flag that switches speculation by {deed.part!r}")
    return _with_ks(speculation, without_loads(before, loads))


def _with_ks(speculation: Speculation, ks: ByLoad) -> Speculation:
    longest = max(k for _, k in ks)
    if not longest:
        return OFF
    ends = [start - 1 for start, _ in ks[1:]] + [max(_MANY, ks[-1][0])]
    schedule = tuple((start, end, k) for (start, k), end in zip(ks, ends, strict=True))
    return replace(speculation, k=longest, schedule=schedule if len(ks) > 1 else ())


def _plain(deed: Deed) -> dict[str, object]:
    return {"action": str(deed.action), "k": deed.k, "part": deed.part}


def _message(text: str) -> str:
    try:
        return f": {json.loads(text)['error']['message']:.200}"
    except (ValueError, LookupError, TypeError):
        return ""
