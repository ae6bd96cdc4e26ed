"""Against a real HTTP server and real commands on this machine."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from outdraft.backends.backend import Serving
from outdraft.observe.fetch import open_session
from outdraft.speculation import Schedule, Speculation
from outdraft.testing.fake_server import refusing_url
from outdraft.watch.acting import Acting, Known, changed
from outdraft.watch.actions import Deed, Passing
from outdraft.watch.findings import Action
from outdraft.watch.limits import ServerLimits

OFF = Deed("r0:8000", Action.TURN_OFF, None, "", 0.0)
LOWER = Deed("r0:8000", Action.LOWER_K, 2, "", 0.0)
FOR = Deed("r0:8000", Action.TURN_OFF_FOR, None, "9-16 at a time", 0.0)


def acted(folder: Path, what: Callable[[Acting], Awaitable[str]], **more: Any) -> str:
    async def all_of_it() -> str:
        async with open_session() as session:
            return await what(Acting(folder, session, **more))

    return asyncio.run(all_of_it())


def test_our_server_is_told_with_its_key(tmp_path: Path) -> None:
    told: list[tuple[str, Any]] = []

    async def admin(request: web.Request) -> web.Response:
        key = request.headers.get("Authorization", "")
        told.append((key, await request.json()))
        if key != "Bearer key":
            return web.json_response({"error": {"message": "no such key"}}, status=401)
        return web.json_response({})

    async def moved(request: web.Request) -> web.Response:
        return web.Response(status=307, headers={"Location": "/admin/speculation"})

    async def all_of_it() -> list[str]:
        app = web.Application()
        app.router.add_post("/admin/speculation", admin)
        app.router.add_post("/moved/admin/speculation", moved)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://user:password@127.0.0.1:{runner.addresses[0][1]}"
        async with open_session() as session:
            right = Acting(tmp_path, session, admin_key="key")
            answers = [
                await right.do(LOWER, "outdraft", f"{url}/v1"),
                await right.do(FOR, "outdraft", url),
                await right.undo(LOWER, "outdraft", url),
                await Acting(tmp_path, session, admin_key="wrong").do(OFF, "outdraft", url),
                await right.do(OFF, "outdraft", f"{url}/moved"),
                await Acting(tmp_path, session).do(OFF, "outdraft", url),
            ]
        await runner.cleanup()
        return answers

    assert asyncio.run(all_of_it()) == [
        "",
        "",
        "",
        "http 401: no such key",
        "http 307",
        "no --admin-key was given",
    ]
    assert [body for _, body in told] == [
        {"max_k": 2},
        {"schedule": [[1, 64], [9, 0], [17, 64]]},
        {"max_k": None},
        {"max_k": 0},
    ]


def test_limits_of_our_server_are_read_kept_and_restored(tmp_path: Path) -> None:
    told: list[Any] = []
    shown: list[Any] = [
        {"limits": [[1, 5], [9, 2]]},
        {"limits": [], "canary_share": 0.02},
        {"limits": 3},
        [],
        {},
    ]

    async def read(request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == "Bearer key"
        return web.json_response(shown.pop(0))

    async def tell(request: web.Request) -> web.Response:
        told.append(await request.json())
        return web.json_response({})

    async def all_of_it() -> list[Any]:
        app = web.Application()
        app.router.add_get("/admin/speculation", read)
        app.router.add_post("/admin/speculation", tell)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        async with open_session() as session:
            acting = Acting(tmp_path, session, admin_key="key")
            answers = [await acting.limits(url) for _ in range(len(shown))]
            deed = replace(LOWER, limits=answers[0][0])
            assert await acting.do(deed, "outdraft", url) == ""
            assert await acting.undo(deed, "outdraft", url) == ""
            assert (
                await acting.undo(replace(deed, limits=ServerLimits(((1, 3),))), "outdraft", url)
                == ""
            )
        await runner.cleanup()
        return answers

    unsaid = (None, "it does not say which limits it has")
    assert asyncio.run(all_of_it()) == [
        (ServerLimits(((1, 5), (9, 2))), ""),
        (ServerLimits((), canary_share=0.02), ""),
        unsaid,
        unsaid,
        unsaid,
    ]
    assert told == [{"max_k": 2}, {"schedule": [[1, 5], [9, 2]]}, {"max_k": 3}]


def test_problems_that_pass_are_told_from_others(tmp_path: Path) -> None:
    async def failing(request: web.Request) -> web.Response:
        return web.Response(status=int(request.match_info["status"]))

    async def all_of_it() -> list[str]:
        app = web.Application()
        app.router.add_post("/{status}/admin/speculation", failing)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        async with open_session() as session:
            acting = Acting(tmp_path, session, admin_key="key")
            urls = [f"{url}/503", f"{url}/429", refusing_url(), f"{url}/401", f"{url}/400"]
            answers = [await acting.do(OFF, "outdraft", each) for each in urls]
        await runner.cleanup()
        return answers

    problems = asyncio.run(all_of_it())
    assert all(problems)
    passing = [isinstance(each, Passing) for each in problems]
    assert passing == [True, True, True, False, False]


def test_another_engine_gets_a_configuration_and_a_command(tmp_path: Path) -> None:
    seen = tmp_path / "seen.json"
    code = (
        "import json, os, sys; json.dump([sys.argv[1:], {k: v for k, v in os.environ.items() "
        f"if k.startswith('OUTDRAFT_')}}], open({str(seen)!r}, 'w'))"
    )
    command = (sys.executable, "-c", code, "{config}", "{replica}")
    known = Known(Speculation("ngram", 5), lambda engine: Serving("Qwen/Qwen3-0.6B"))
    folder = tmp_path / "new"
    assert acted(folder, lambda it: it.do(LOWER, "vllm", ""), command=command, known=known) == ""
    text = (folder / "r0_8000.sh").read_text()
    assert '"num_speculative_tokens": 2' in text.replace("\\", "")
    (config, replica), variables = json.loads(seen.read_text())
    assert (config, replica) == (str(folder / "r0_8000.sh"), "r0:8000")
    assert variables["OUTDRAFT_ADVICE"] == "LOWER K TO 2"
    assert variables["OUTDRAFT_K"] == "2"
    assert acted(folder, lambda it: it.undo(LOWER, "vllm", ""), command=command, known=known) == ""
    assert '"num_speculative_tokens": 5' in (folder / "r0_8000.sh").read_text().replace("\\", "")
    assert json.loads(seen.read_text())[1]["OUTDRAFT_ADVICE"] == "KEEP"


def test_a_command_does_not_get_our_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = ("OUTDRAFT_ADMIN_KEY", "OUTDRAFT_API_KEY", "OUTDRAFT_WEBHOOK_SECRET")
    for name in (*keys, "OUTDRAFT_OF_THE_USER"):
        monkeypatch.setenv(name, "secret")
    seen = tmp_path / "seen.json"
    code = f"import json, os; json.dump(dict(os.environ), open({str(seen)!r}, 'w'))"
    command = (sys.executable, "-c", code)
    assert acted(tmp_path, lambda it: it.do(OFF, "vllm", ""), command=command) == ""
    variables = json.loads(seen.read_text())
    assert not {*keys} & {*variables}
    assert variables["OUTDRAFT_OF_THE_USER"] == "secret"
    assert variables["PATH"]


def test_without_results_of_tune_the_advice_itself_is_written(tmp_path: Path) -> None:
    assert acted(tmp_path, lambda it: it.do(OFF, "vllm", "")) == ""
    written = json.loads((tmp_path / "r0_8000.json").read_text())
    assert written == {"replica": "r0:8000", "action": "TURN OFF", "k": None, "part": ""}


def test_commands_that_fail_hang_or_are_not_there(tmp_path: Path) -> None:
    def run(*command: str, limit_s: float = 20.0) -> str:
        return acted(
            tmp_path,
            lambda it: it.do(OFF, "vllm", ""),
            command=command,
            command_limit_s=limit_s,
        )

    assert run("false") == "false ended with code 1"
    assert run("no-such-command-here").startswith("no-such-command-here cannot be run")
    start = time.monotonic()
    hung = run("sleep", "60", limit_s=0.2)
    assert hung == "sleep took more than 0.2 s and was ended"
    assert isinstance(hung, Passing)
    assert time.monotonic() - start < 10


def test_what_a_deed_makes_of_a_speculation() -> None:
    ngram = Speculation("ngram", 5)
    assert changed(ngram, OFF).is_off
    assert changed(ngram, LOWER).k == 2
    by_load = changed(ngram, FOR)
    assert [by_load.k_at(n) for n in (1, 8, 9, 16, 17, 100)] == [5, 5, 0, 0, 5, 5]


@pytest.mark.parametrize(
    ("deed", "schedule"),
    [
        (LOWER, ((1, 8, 2), (9, 65536, 0))),
        (replace(LOWER, k=5), ((1, 8, 4), (9, 65536, 0))),
        (replace(FOR, part="3-4 at a time"), ((1, 2, 4), (3, 4, 0), (5, 8, 4), (9, 65536, 0))),
        (replace(FOR, part="9-16 at a time"), ((1, 8, 4), (9, 65536, 0))),
    ],
)
def test_a_schedule_that_tune_recommended_is_lowered_and_never_lifted(
    deed: Deed, schedule: Schedule
) -> None:
    recommended = Speculation("ngram", 4, schedule=((1, 8, 5), (9, 65536, 0)))
    made = changed(recommended, deed)
    assert made.schedule == schedule
    assert made.k == max(k for _, _, k in schedule)


def test_a_speculation_of_which_nothing_is_left_is_off() -> None:
    only = Speculation("ngram", 5, schedule=((1, 4, 5), (5, 64, 0)))
    assert changed(only, replace(FOR, part="1 at a time, 2-4 at a time")).is_off
    assert changed(Speculation("ngram", 5), replace(LOWER, k=8)) == Speculation("ngram", 5)
