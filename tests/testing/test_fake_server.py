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
from outdraft.loadgen.endpoint import Endpoint, make_requests
from outdraft.loadgen.load import ClientLoad, drive
from outdraft.records import Record
from outdraft.testing.fake_process import fake_server_process
from outdraft.testing.fake_script import Script, ScriptedAnswer, ScriptedRequest, chance_at
from outdraft.testing.fake_server import FakeServer, fake_server, refusing_url
from outdraft.workload.prompt import Message, Planned, Prompt


def request(
    prompt: str = "hello", *, number: int = 0, temperature: float = 0.0, **more: int
) -> ScriptedRequest:
    values = {"max_tokens": 50, "seed": 1, "ignore_eos": True, "num_running": 1, **more}
    return ScriptedRequest(prompt, temperature, number=number, **values)  # type: ignore[arg-type]


def tpot(played: ScriptedAnswer) -> float:
    return (played.at_s[-1] - played.at_s[0]) / (played.num_tokens - 1)


def get(url: str) -> tuple[int, str]:
    with urllib.request.urlopen(url, timeout=10) as response:
        return response.status, response.read().decode()


# ---------------------------------------------------------------- the script


def test_a_planted_speedup_is_exact_whatever_is_accepted() -> None:
    off = Script(prompt_spread=0.5)
    on = Script(prompt_spread=0.5, k=4, speedup=1.3, seed=7)
    for prompt in ("a", "b", "c"):
        plain, fast = off.play(request(prompt)), on.play(request(prompt))
        assert math.isclose(tpot(plain) / tpot(fast), 1.3)
        assert math.isclose(plain.at_s[0], fast.at_s[0])  # the first token costs what it did
        assert len(fast.tokens) < len(plain.tokens)
    assert tpot(off.play(request("a"))) != tpot(off.play(request("b")))


def test_a_speedup_that_depends_on_the_load() -> None:
    script = Script(speedup=lambda running: 2.0 if running < 8 else 0.8)
    assert math.isclose(tpot(script.play(request(num_running=1))), 0.0025)
    assert math.isclose(tpot(script.play(request(num_running=9))), 0.00625)


def test_a_speedup_that_comes_from_acceptance() -> None:
    script = Script(k=3, acceptance=1.0, round_cost=2.0)
    played = script.play(request(max_tokens=9))
    assert played.tokens == (1, 4, 4)
    assert math.isclose(tpot(played), 2 * 2 * 0.005 / 8)


def test_a_planted_tail() -> None:
    script = Script(tail_share=0.02, tail_factor=10)
    times = [script.play(request(number=number)).at_s[0] for number in range(3000)]
    slow = sum(time > 0.1 for time in times)
    assert 30 <= slow <= 95
    assert math.isclose(statistics.median(times), 0.02)


def test_noise_is_seeded_and_the_prompts_share_is_the_same_everywhere() -> None:
    one, same, other = (Script(noise=0.2, prompt_spread=0.2, seed=seed) for seed in (1, 1, 2))
    assert one.play(request(number=5)) == same.play(request(number=5))
    assert one.play(request(number=5)).at_s != other.play(request(number=5)).at_s
    assert one.play(request(number=5)).at_s != one.play(request(number=6)).at_s


def test_timing_as_a_function() -> None:
    script = Script(timing=lambda prompt, temperature, number: (len(prompt), number + temperature))
    played = script.play(request("four", number=2, temperature=0.5, max_tokens=3))
    assert played.at_s == (4, 6.5, 9)


def test_acceptance_by_temperature_and_by_prompt() -> None:
    by_temperature = {0.0: 0.9, 1.0: 0.1}
    assert chance_at(by_temperature, "", 0.2) == 0.9
    assert chance_at(by_temperature, "", 5.0) == 0.1
    assert chance_at(lambda prompt, _: 0.8 if "def" in prompt else 0.3, "def f", 0) == 0.8
    script = Script(k=4, acceptance=by_temperature)
    for temperature, expected in ((0.0, 0.9), (1.0, 0.1)):
        rounds = [
            each
            for number in range(200)
            for each in script.play(request(number=number, temperature=temperature)).rounds
            if each[0]
        ]
        first = statistics.mean(accepted > 0 for _, accepted in rounds)
        assert abs(first - expected) < 0.03


def test_the_text_does_not_depend_on_speculation() -> None:
    assert request("a").words(5) == request("a").words(9)[:5]
    assert request("a", temperature=1.0).words(5) != request("a").words(5)
    assert request("a", seed=2).words(5) == request("a", seed=3).words(5)  # greedy
    for k in (0, 1, 5):
        assert Script(k=k).play(request(max_tokens=30)).num_tokens == 30


def test_planted_texts() -> None:
    def texts(script: Script) -> list[tuple[str, ...]]:
        return [script.play(request(f"{n}", number=n, max_tokens=30)).words for n in range(400)]

    own = texts(Script())
    assert own == texts(Script(k=4, seed=3)) == texts(Script(speedup=2.0))
    junk = texts(Script(is_junk=True))
    assert len(set(junk)) == 1
    assert junk[0] not in own
    near = texts(Script(near_ties=0.1))
    others = [(a, b) for a, b in zip(own, near, strict=True) if a != b]
    assert 0.06 < len(others) / 400 < 0.14
    assert {len(each) for each in near} == {30}
    assert statistics.mean(a[0] == b[0] for a, b in others) > 0.8, "they begin alike"
    assert near != texts(Script(near_ties=0.1, seed=1))


def test_texts_have_a_natural_length_unless_ignore_eos_is_set() -> None:
    natural = Script().play(request(ignore_eos=False, max_tokens=1000))
    assert 8 <= natural.num_tokens <= 64
    assert natural.finish_reason == "stop"
    assert Script().play(request(max_tokens=100)).finish_reason == "length"


# ---------------------------------------------------------------- the wire


def measured(url: str, count: int, *, tokens: int = 21, concurrency: int = 4) -> list[Record]:
    prompts = [Prompt(f"p{n}", "chat", (Message("user", f"number {n}"),), 9) for n in range(count)]
    plan = [Planned(prompt, 0.0, tokens, seed=1) for prompt in prompts]

    load = ClientLoad(Endpoint(url), make_requests(plan), concurrency=concurrency)
    return list(asyncio.run(drive(load)).records)


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
            [request] = make_requests([Planned(Prompt("p", "chat", (), 1), 0.0, 9, 1)])
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
    with FakeServer() as server:
        for body in (b"no json", b"[]", b'{"stream": true}', b'{"messages": []}'):
            request = urllib.request.Request(f"{server.url}/v1/chat/completions", body)
            with pytest.raises(urllib.error.HTTPError, match="400"):
                urllib.request.urlopen(request, timeout=10)
        assert server.metrics.num_running == 0, "a refused request does not run"


def test_a_fast_answer_reports_acceptance_to_those_who_ask() -> None:
    message = {"messages": [{"role": "user", "content": "hello"}], "stream": True, "max_tokens": 9}
    with fake_server(Script(ttft_s=0, tpot_s=0, k=3), fast=True) as url:
        answers = []
        for asked in ({}, {"include_metrics": True}):
            body = json.dumps({**message, **asked}).encode()
            with urllib.request.urlopen(f"{url}/v1/chat/completions", body, timeout=10) as answer:
                answers.append("speculative_decoding" in answer.read().decode())
    assert answers == [False, True]


def test_refuse_refuses_new_connections() -> None:
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
        "outdraft.loadgen.quality; "
        "print(sorted({'torch', 'outdraft.engine', 'outdraft.server'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "[]\n"
