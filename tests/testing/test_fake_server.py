"""The fake server: what is planted is there, and the wire is what clients expect."""

from __future__ import annotations

import asyncio
import json
import math
import statistics
import subprocess
import sys
import urllib.request

import pytest
from openai import OpenAI
from prometheus_client.parser import text_string_to_metric_families

from outdraft.errors import OptionError
from outdraft.loadgen.client import Client
from outdraft.loadgen.endpoint import Endpoint
from outdraft.loadgen.load import drive
from outdraft.loadgen.request import requests_of
from outdraft.records import Record
from outdraft.testing.fake_process import fake_server_process
from outdraft.testing.fake_script import Asked, Played, Script, acceptance_at, words_of
from outdraft.testing.fake_server import FakeServer, fake_server, refusing_url
from outdraft.workload.prompt import Message, Planned, Prompt


def asked(prompt: str = "hello", *, count: int = 0, temperature: float = 0.0, **more: int) -> Asked:
    values = {"max_tokens": 50, "seed": 1, "ignore_eos": True, "running": 1, **more}
    return Asked(prompt=prompt, temperature=temperature, count=count, **values)  # type: ignore[arg-type]


def tpot(played: Played) -> float:
    return (played.at_s[-1] - played.at_s[0]) / (played.num_tokens - 1)


def get(url: str) -> tuple[int, str]:
    with urllib.request.urlopen(url, timeout=10) as response:
        return response.status, response.read().decode()


# ---------------------------------------------------------------- the script


def test_a_planted_speedup_is_exact_whatever_is_accepted() -> None:
    off = Script(prompt_spread=0.5)
    on = Script(prompt_spread=0.5, k=4, speedup=1.3, seed=7)
    for prompt in ("a", "b", "c"):
        plain, fast = off.play(asked(prompt)), on.play(asked(prompt))
        assert math.isclose(tpot(plain) / tpot(fast), 1.3)
        assert math.isclose(plain.at_s[0], fast.at_s[0])  # the first token costs what it did
        assert len(fast.tokens) < len(plain.tokens)
    assert tpot(off.play(asked("a"))) != tpot(off.play(asked("b")))


def test_a_speedup_that_depends_on_the_load() -> None:
    script = Script(speedup=lambda running: 2.0 if running < 8 else 0.8)
    assert math.isclose(tpot(script.play(asked(running=1))), 0.0025)
    assert math.isclose(tpot(script.play(asked(running=9))), 0.00625)


def test_a_speedup_that_comes_from_acceptance() -> None:
    script = Script(k=3, acceptance=1.0, round_cost=2.0)
    played = script.play(asked(max_tokens=9))
    assert played.tokens == (1, 4, 4)
    assert math.isclose(tpot(played), 2 * 2 * 0.005 / 8)


def test_a_planted_tail() -> None:
    script = Script(tail_share=0.02, tail_factor=10)
    times = [script.play(asked(count=count)).at_s[0] for count in range(3000)]
    slow = sum(time > 0.1 for time in times)
    assert 30 <= slow <= 95
    assert math.isclose(statistics.median(times), 0.02)


def test_noise_is_seeded_and_the_prompts_share_is_the_same_everywhere() -> None:
    one, same, other = (Script(noise=0.2, prompt_spread=0.2, seed=seed) for seed in (1, 1, 2))
    assert one.play(asked(count=5)) == same.play(asked(count=5))
    assert one.play(asked(count=5)).at_s != other.play(asked(count=5)).at_s
    assert one.play(asked(count=5)).at_s != one.play(asked(count=6)).at_s


def test_timing_as_a_function() -> None:
    script = Script(timing=lambda prompt, temperature, count: (len(prompt), count + temperature))
    played = script.play(asked("four", count=2, temperature=0.5, max_tokens=3))
    assert played.at_s == (4, 6.5, 9)


def test_acceptance_by_temperature_and_by_prompt() -> None:
    by_temperature = {0.0: 0.9, 1.0: 0.1}
    assert acceptance_at(by_temperature, "", 0.2) == 0.9
    assert acceptance_at(by_temperature, "", 5.0) == 0.1
    assert acceptance_at(lambda prompt, _: 0.8 if "def" in prompt else 0.3, "def f", 0) == 0.8
    script = Script(k=4, acceptance=by_temperature)
    for temperature, expected in ((0.0, 0.9), (1.0, 0.1)):
        rounds = [
            each
            for count in range(200)
            for each in script.play(asked(count=count, temperature=temperature)).rounds
            if each[0]
        ]
        first = statistics.mean(accepted > 0 for _, accepted in rounds)
        assert abs(first - expected) < 0.03


def test_the_text_does_not_depend_on_speculation() -> None:
    assert words_of(asked("a"), 5) == words_of(asked("a"), 9)[:5]
    assert words_of(asked("a", temperature=1.0), 5) != words_of(asked("a"), 5)
    assert words_of(asked("a", seed=2), 5) == words_of(asked("a", seed=3), 5)  # greedy
    for k in (0, 1, 5):
        assert Script(k=k).play(asked(max_tokens=30)).num_tokens == 30


def test_texts_end_by_themselves_unless_told_to_go_on() -> None:
    natural = Script().play(asked(ignore_eos=False, max_tokens=1000))
    assert 8 <= natural.num_tokens <= 64
    assert natural.finish_reason == "stop"
    assert Script().play(asked(max_tokens=100)).finish_reason == "length"


# ---------------------------------------------------------------- the wire


def measured(url: str, count: int, *, tokens: int = 21, concurrency: int = 4) -> list[Record]:
    prompts = [Prompt(f"p{n}", "chat", (Message("user", f"number {n}"),), 9) for n in range(count)]
    plan = [Planned(prompt, 0.0, tokens, seed=1) for prompt in prompts]

    async def go() -> list[Record]:
        async with Client(Endpoint(url)) as client:
            return list((await drive(client, requests_of(plan), concurrency=concurrency)).records)

    return asyncio.run(go())


def test_a_planted_speedup_is_measured() -> None:
    """Over the wire, with generous room for a busy machine."""
    with (
        fake_server(Script(ttft_s=0.01, tpot_s=0.01)) as off,
        fake_server(Script(ttft_s=0.01, tpot_s=0.01, k=3, speedup=2.0)) as on,
    ):
        plain, fast = measured(off, 8), measured(on, 8)
    assert all(record.ok for record in [*plain, *fast])
    assert [record.text for record in plain] == [record.text for record in fast]
    ratio = statistics.median(
        (one.tpot_ns or 0) / (other.tpot_ns or 1) for one, other in zip(plain, fast, strict=True)
    )
    assert 1.4 < ratio < 2.6


def test_openais_own_client_reads_it() -> None:
    with fake_server(Script(ttft_s=0, tpot_s=0, k=2)) as url:
        client = OpenAI(base_url=f"{url}/v1", api_key="none")
        stream = client.chat.completions.create(
            model="fake",
            messages=[{"role": "user", "content": "hello there"}],
            max_tokens=7,
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = list(stream)
        client.close()
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert len(text.split()) == 7
    usage = chunks[-1].usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (2, 7)


def test_metrics_health_and_models() -> None:
    with FakeServer(Script(ttft_s=0, tpot_s=0, k=3, acceptance=1.0)) as server:
        measured(server.url, 3, tokens=9)
        status, page = get(f"{server.url}/metrics")
        assert get(f"{server.url}/health") == (200, "")
        assert json.loads(get(f"{server.url}/v1/models")[1])["data"] == [{"id": "fake"}]
        with pytest.raises(urllib.error.HTTPError, match="404"):
            get(f"{server.url}/nothing")
    assert status == 200
    samples = {
        (sample.name, sample.labels.get("position")): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }
    assert samples["vllm:num_requests_running", None] == 0
    assert samples["vllm:kv_cache_usage_perc", None] == 0
    assert samples["vllm:generation_tokens_total", None] == 27
    assert samples["vllm:spec_decode_num_drafts_total", None] == 6
    assert samples["vllm:spec_decode_num_draft_tokens_total", None] == 18
    assert samples["vllm:spec_decode_num_accepted_tokens_total", None] == 18
    assert samples["vllm:spec_decode_num_accepted_tokens_per_pos_total", "2"] == 6


def test_metrics_without_speculation_have_no_counters_of_it() -> None:
    with fake_server() as url:
        assert "spec_decode" not in get(f"{url}/metrics")[1]


def test_a_client_that_goes_away_is_no_longer_running() -> None:
    async def leave(url: str) -> None:
        async with Client(Endpoint(url)) as client:
            [request] = requests_of([Planned(Prompt("p", "chat", (), 1), 0.0, 9, 1)])
            task = asyncio.create_task(client.send(request))
            while server.metrics.num_running == 0:
                await asyncio.sleep(0.005)
            task.cancel()
            await asyncio.wait([task])
            while server.metrics.num_running:
                await asyncio.sleep(0.005)

    with FakeServer(Script(ttft_s=60)) as server:
        asyncio.run(asyncio.wait_for(leave(server.url), 10))


def test_requests_it_cannot_read() -> None:
    with fake_server() as url:
        for body in (b"no json", b"[]", b'{"stream": true}', b'{"messages": []}'):
            request = urllib.request.Request(f"{url}/v1/chat/completions", body)
            with pytest.raises(urllib.error.HTTPError, match="400"):
                urllib.request.urlopen(request, timeout=10)


def test_it_refuses_when_it_is_told_to() -> None:
    with FakeServer() as server:
        server.refuse()
        assert measured(server.url, 1)[0].error == "refused"
    with pytest.raises(urllib.error.URLError, match="refused"):
        get(refusing_url())


def test_a_failure_it_does_not_have() -> None:
    with pytest.raises(OptionError, match=r"unknown failure 'http_504'.*valid: http_500"):
        FakeServer(failures={"http_504": 1})  # type: ignore[dict-item]


def test_in_a_process_of_its_own() -> None:
    with fake_server_process(fast=True, ttft_s=0, tpot_s=0, k=3, acceptance={"0.0": 1.0}) as url:
        records = measured(url, 40, tokens=9, concurrency=8)
        page = get(f"{url}/metrics")[1]
    assert all(record.ok for record in records)
    assert {len(record.chunk_ns) for record in records} == {3}
    assert 'vllm:generation_tokens_total{model_name="fake",engine="0"} 360.0' in page
    assert measured(url, 1)[0].error == "refused"  # it ends with the block


def test_torch_is_not_needed() -> None:
    code = (
        "import sys, outdraft.testing.fake_process, outdraft.loadgen.fleet, "
        "outdraft.loadgen.quality, outdraft.loadgen.journal; "
        "print(sorted({'torch', 'outdraft.engine', 'outdraft.server'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "[]\n"
