"""A whole watch in real time: servers, a receiver of its posts, an admin endpoint."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from outdraft.acceptance import Acceptance
from outdraft.errors import BackendError, OptionError
from outdraft.observe.fetch import open_session
from outdraft.observe.reading import Reading
from outdraft.testing.fake_server import fake_server, refusing_url
from outdraft.watch.acting import Acting
from outdraft.watch.actions import Deed, DeedState
from outdraft.watch.benefit.costs import Costs, LoadCosts
from outdraft.watch.findings import Action, Notice
from outdraft.watch.limits import ServerLimits
from outdraft.watch.run import Running, check_that_somebody_answered, run_watch
from outdraft.watch.scraper import Unreadable
from outdraft.watch.snapshot import Posting, Snapshot
from outdraft.watch.sources import Looks
from outdraft.watch.watch import Watch, WatchRules
from outdraft.watch.webhook import SIGNATURE, Webhook
from tests.watch.test_sources import settings_of

QUICK = ("--interval", "200ms", "--window", "10s")


@dataclass
class Heard:
    """What was posted to it."""

    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    status: int = 200
    limits: list[list[int]] = field(default_factory=list)  # what our server says that it has

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        app = web.Application()
        app.router.add_post("/{path:.*}", self._hear)
        app.router.add_get("/admin/speculation", self._show)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()

    async def _hear(self, request: web.Request) -> web.Response:
        self.bodies.append(await request.json())
        self.headers.append(dict(request.headers))
        return web.json_response({}, status=self.status)

    async def _show(self, request: web.Request) -> web.Response:
        return web.json_response({"limits": self.limits}, status=self.status)


def watched(*words: str, stop_after: int | None = None) -> tuple[Snapshot, list[Snapshot]]:
    """The last snapshot, and all of them."""
    seen: list[Snapshot] = []

    async def work() -> Snapshot | None:
        stopped = asyncio.Event()

        def show(snapshot: Snapshot) -> None:
            seen.append(snapshot)
            if len(seen) == stop_after:
                stopped.set()

        return await run_watch(settings_of(*words), show, pytest.fail, stopped)

    last = asyncio.run(work())
    assert last is not None
    return last, seen


def test_it_looks_so_long_and_the_last_look_is_at_the_end() -> None:
    start = time.monotonic()
    with fake_server() as url:
        last, seen = watched(url, *QUICK, "--for", "1s")
    assert time.monotonic() - start >= 1.0
    assert 3 <= len(seen) <= 6
    assert seen[-1] is last
    check_that_somebody_answered(last)


def test_it_ends_when_it_is_stopped() -> None:
    with fake_server() as url:
        _, seen = watched(url, *QUICK, stop_after=2)
    assert len(seen) == 2


def test_nobody_answered() -> None:
    url = refusing_url()
    last, _ = watched(url, *QUICK, "--for", "500ms")
    with pytest.raises(BackendError, match=r"no server answered \(127\.0\.0\.1:\d+: "):
        check_that_somebody_answered(last)


def test_nobody_answered_in_this_run(tmp_path: Path) -> None:
    """What an earlier one knew is no answer."""
    words = (*QUICK, "--for", "500ms", "--state", str(tmp_path / "state.json"))
    with fake_server() as url:
        check_that_somebody_answered(watched(url, *words)[0])
    last, _ = watched(url, *words)
    assert last.replicas[0].window is not None
    with pytest.raises(BackendError, match="no server answered"):
        check_that_somebody_answered(last)


def test_what_happens_is_posted_and_kept(tmp_path: Path) -> None:
    """Also what an earlier watch could not post any more."""
    heard, state, events = Heard(), tmp_path / "state.json", tmp_path / "events.jsonl"
    files = ("--state", str(state), "--events", str(events))
    earlier = Watch(WatchRules(), now=time.time(), events=events, state=state)
    earlier._tell(Notice(time.time(), "replica", "a", "was restarted"))
    earlier.close(time.time())

    async def work(url: str) -> None:
        async with heard.listening() as hook:
            words = (url, *QUICK, *files, "--webhook", hook, "--webhook-secret", "s", "--for", "1s")
            await run_watch(settings_of(*words), lambda _: None, pytest.fail, asyncio.Event())

    with fake_server() as url:
        asyncio.run(work(url))
    assert [body["text"] for body in heard.bodies] == ["was restarted"]
    assert heard.headers[0][SIGNATURE].startswith("sha256=")
    assert json.loads(state.read_text())["delivered"] == 1


class OneServer:
    """Readings of a server of ours, whose admin endpoint is at `address`."""

    interval_s = 0.2

    def __init__(self, address: str | None) -> None:
        self.address = address

    async def look(self, now: float) -> Looks:
        return {"a": Reading(now, "outdraft", {"num_tokens": now}, {})}

    def url(self, replica: str) -> str | None:
        return self.address


def done(deed: Deed, address: str | None, heard: Heard, folder: Path) -> list[Notice]:
    """What is told when the deed was wanted."""
    watch = Watch(WatchRules(interval_s=0.2, acts=True), now=time.time())

    async def work() -> None:
        async with heard.listening() as url, open_session() as session:
            acting = Acting(folder, session, "key")
            readings = OneServer(None if address is None else url)
            running = Running(watch, readings, None, acting)
            await running.look()
            watch.wanted.append(deed)
            await running.look()
            await running.end()

    asyncio.run(work())
    return [told.notice for told in watch.events.recent if told.notice.kind == "action"]


def test_a_deed_is_done_and_one_that_did_not_help_is_taken_back(tmp_path: Path) -> None:
    heard, deed = Heard(), Deed("a", Action.LOWER_K, 2, "", time.time())
    assert [each.text for each in done(deed, "", heard, tmp_path)] == ["LOWER K TO 2 is done"]
    back = replace(deed, state=DeedState.TAKEN_BACK)
    assert [each.text for each in done(back, "", heard, tmp_path)] == [
        "LOWER K TO 2 is taken back"
    ]  # fmt: skip
    assert heard.bodies == [{"max_k": 2}, {"max_k": None}]
    assert {each["Authorization"] for each in heard.headers} == {"Bearer key"}


def test_limits_that_were_there_are_kept_in_the_deed_and_restored(tmp_path: Path) -> None:
    heard = Heard(limits=[[1, 5], [9, 2]])
    [notice] = done(Deed("a", Action.LOWER_K, 3, "", time.time()), "", heard, tmp_path)
    deed = Deed.from_json(notice.data)
    assert deed.limits == ServerLimits(((1, 5), (9, 2)))
    heard.limits = [[1, 3], [9, 2]]
    done(replace(deed, state=DeedState.TAKEN_BACK), "", heard, tmp_path)
    assert heard.bodies == [{"schedule": [[1, 3], [9, 2]]}, {"schedule": [[1, 5], [9, 2]]}]


def test_limits_read_before_a_kill_are_not_read_again(tmp_path: Path) -> None:
    """The server may have been told already: what it shows then is what we set."""
    files = {"events": tmp_path / "e.jsonl", "state": tmp_path / "s.json"}
    watch = Watch(WatchRules(acts=True), now=time.time(), **files)
    deed = Deed("a", Action.LOWER_K, 3, "", time.time(), limits=ServerLimits(((1, 5),)))
    watch.note(deed)
    watch.events.close()
    [wanted] = Watch(WatchRules(acts=True), now=time.time(), **files).wanted
    assert wanted == deed
    heard = Heard(limits=[[1, 3]])
    [notice] = done(wanted, "", heard, tmp_path)
    assert Deed.from_json(notice.data).limits == ServerLimits(((1, 5),))


def test_a_deed_that_cannot_be_done_is_said(tmp_path: Path) -> None:
    deed = Deed("a", Action.TURN_OFF, None, "", time.time())
    [refused] = done(deed, "", Heard(status=401), tmp_path)
    assert refused.text == "TURN OFF could not be done: http 401"
    [unknown] = done(deed, None, Heard(), tmp_path)
    assert "its address is not known" in unknown.text


class SilentServer(OneServer):
    """Does not answer before it is told to."""

    is_up = False

    async def look(self, now: float) -> Looks:
        return await super().look(now) if self.is_up else {"a": Unreadable("refused", now)}


@pytest.mark.parametrize("state", [DeedState.ASKED, DeedState.TAKEN_BACK])
def test_after_a_restart_a_server_that_does_not_answer_is_not_taken_for_another(
    tmp_path: Path, state: DeedState
) -> None:
    """Whether it is ours is not known then: nothing is written or run, and it is tried again."""
    files = {"events": tmp_path / "e.jsonl", "state": tmp_path / "s.json"}
    before = Watch(WatchRules(acts=True), now=time.time(), **files)
    before.note(replace(Deed("a", Action.TURN_OFF, None, "", time.time()), state=state))
    before.events.close()
    watch = Watch(WatchRules(interval_s=0.2, acts=True), now=time.time(), **files)
    heard = Heard()

    async def work() -> None:
        async with heard.listening() as url, open_session() as session:
            acting = Acting(tmp_path / "out", session, "key", command=("touch", str(ran)))
            readings = SilentServer(url)
            running = Running(watch, readings, None, acting)
            for each in (False, True):
                readings.is_up = each
                await running.look()
                await running.end()
            deed = watch.state.deeds.newest["a"]
            assert deed.again_at is not None
            watch._take_back_again(deed.again_at)
            await running.look()
            await running.end()

    ran = tmp_path / "ran"
    asyncio.run(work())
    words = "taken back" if state is DeedState.TAKEN_BACK else "done"
    notices = [told.notice for told in watch.events.recent if told.notice.kind == "action"]
    assert notices[0].text == (
        f"TURN OFF could not be {words}: it has not answered yet, and its engine is not known"
    )
    assert not ran.exists()
    assert not (tmp_path / "out").exists()
    assert heard.bodies == ([{"max_k": None}] if state is DeedState.TAKEN_BACK else [])


def test_a_webhook_that_refuses_is_said_once_and_shown() -> None:
    said: list[str] = []
    heard, seen = Heard(status=401), list[Snapshot]()

    async def work() -> None:
        async with heard.listening() as hook, open_session() as session:
            watch = Watch(WatchRules(interval_s=0.2), now=time.time())
            webhook = Webhook(f"{hook}/services/secret?token=secret", None)
            posting = asyncio.create_task(webhook.run())
            acting = Acting(Path(), session)
            running = Running(watch, OneServer(None), webhook, acting, said.append)
            for text in ("one", "two", "three"):
                watch._tell(Notice(time.time(), "replica", "a", text))
                await running.look()
                while webhook.num_waiting:
                    await asyncio.sleep(0.01)
            seen.append(await running.look())
            heard.status = 200
            watch._tell(Notice(time.time(), "replica", "a", "four"))
            await running.look()
            while webhook.num_waiting:
                await asyncio.sleep(0.01)
            seen.append(await running.look())
            posting.cancel()

    asyncio.run(work())
    [line] = said
    assert line.startswith("--webhook http://127.0.0.1:")
    assert line.endswith("does not take events: http 401")
    assert "secret" not in line
    assert [each.posting for each in seen] == [Posting("http 401", 3), Posting("", 3)]


@pytest.mark.parametrize("key", [None, "key"])
def test_acting_on_a_server_of_ours_needs_its_key_at_the_start(
    tmp_path: Path, key: str | None
) -> None:
    """Else the first deed would fail, and bar itself for a day."""
    watch = Watch(WatchRules(interval_s=0.2, acts=True), now=time.time())
    deed = Deed("a", Action.TURN_OFF, None, "", time.time())
    heard = Heard()

    async def work() -> None:
        async with heard.listening() as url, open_session() as session:
            watch.wanted.append(deed)  # of an earlier watch
            running = Running(watch, OneServer(url), None, Acting(tmp_path, session, key))
            await running.look()
            await running.end()

    if key is None:
        with pytest.raises(OptionError, match=r"--act changes a .*--admin-key"):
            asyncio.run(work())
        assert not heard.bodies
    else:
        asyncio.run(work())
        assert heard.bodies == [{"max_k": 0}]


def test_a_baseline_of_another_method_is_said_to_be_left_out(tmp_path: Path) -> None:
    said: list[str] = []
    baseline = Costs((LoadCosts(1.0, {1.0: 1.1}, 0.1),), method="eagle")

    class Auto(OneServer):
        async def look(self, now: float) -> Looks:
            counts = None if self.address == "off" else Acceptance()
            found = Reading(
                now, "outdraft", {"num_tokens": now}, {}, {}, counts, method=self.address
            )
            return {"a": found}

    async def work(method: str | None) -> None:
        async with open_session() as session:
            watch = Watch(WatchRules(interval_s=0.2), now=time.time(), costs=baseline)
            acting = Acting(tmp_path, session)
            running = Running(watch, Auto(method), None, acting, said.append, baseline)
            for _ in range(2):
                await running.look()

    for method in ("eagle", None, "off"):
        asyncio.run(work(method))
    assert not said
    asyncio.run(work("auto"))
    [line] = said
    assert line.startswith("--baseline was measured with eagle and says nothing of a, which runs")
    assert line.endswith("auto; measure that with `outdraft tune --methods auto`")


@pytest.mark.parametrize("state", [DeedState.ASKED, DeedState.TAKEN_BACK])
@pytest.mark.parametrize("again_at", [None, 1.0])
def test_a_watch_that_does_not_act_leaves_what_another_one_began(
    tmp_path: Path, state: DeedState, again_at: float | None
) -> None:
    path = tmp_path / "s.json"
    before = Watch(WatchRules(acts=True), now=time.time(), state=path)
    before.note(
        Deed("a", Action.TURN_OFF, None, "", time.time() - 9e5, state=state, again_at=again_at)
    )
    before.events.close()
    watch = Watch(WatchRules(interval_s=0.2), now=time.time(), state=path)
    heard, said = Heard(), list[str]()

    async def work() -> None:
        async with heard.listening() as url, open_session() as session:
            acting = Acting(tmp_path, session, "key")
            running = Running(watch, OneServer(url), None, acting, said.append)
            for _ in range(2):
                await running.look()
            await running.end()

    asyncio.run(work())
    assert heard.bodies == []
    assert watch.state.deeds == before.state.deeds
    assert said == ["an earlier watch left this unfinished: TURN OFF of a; --act finishes it"]


def test_what_was_said_of_a_replica_that_is_gone_is_forgotten(tmp_path: Path) -> None:
    baseline = Costs((LoadCosts(1.0, {1.0: 1.1}, 0.1),), method="eagle")

    async def work() -> None:
        async with open_session() as session:
            watch = Watch(WatchRules(interval_s=0.2), now=time.time(), costs=baseline)
            running = Running(
                watch, OneServer(None), None, Acting(tmp_path, session), baseline=baseline
            )
            running._said = {"a", "gone"}
            await running.look()
            assert running._said == {"a"}

    asyncio.run(work())
