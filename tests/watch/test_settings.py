from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from outdraft.errors import OptionError
from outdraft.options import add_options, fill_options
from outdraft.watch.options import ACTING_OPTIONS, SHOWING_OPTIONS, WATCHED_OPTIONS
from outdraft.watch.settings import DEFAULT_LISTEN, WatchSettings

OPTIONS = (*WATCHED_OPTIONS, *ACTING_OPTIONS, *SHOWING_OPTIONS)
URL = "http://127.0.0.1:8000"


def settings(*words: str, config: str | None = None) -> WatchSettings:
    parser = argparse.ArgumentParser()
    add_options(parser, "all", OPTIONS)
    args = parser.parse_args(words)
    fill_options(args, OPTIONS, config, "watch")
    return WatchSettings.from_options(args)


def test_defaults() -> None:
    made = settings(URL)
    assert made.urls == (URL,)
    assert (made.interval_s, made.window_s, made.since_s) == (5.0, 600.0, 600.0)
    assert (made.listen, made.has_page, made.for_s, made.acts) == (None, False, None, False)
    assert made.act_command == ()


def test_every_option() -> None:
    made = settings(
        URL, "http://b:1", "--dns", "pods.svc:8000", "--interval", "2s", "--window", "1m",
        "--gpu-hour-cost", "2.5", "--events", "e.jsonl", "--webhook", "https://hook/x",
        "--webhook-secret", "s", "--act", "--act-command", "kubectl apply -f '{config}'",
        "--admin-key", "a", "--state", "s.json", "--listen", "[::1]:0", "--ui", "--for", "60s",
        "--json", "--api-key", "k", "--targets", "t.json",
    )  # fmt: skip
    assert made.urls == (URL, "http://b:1", "dns://pods.svc:8000")
    assert made.act_command == ("kubectl", "apply", "-f", "{config}")
    assert (made.listen, made.for_s, made.is_json) == (("::1", 0), 60.0, True)
    assert (made.gpu_hour_cost, made.targets) == (2.5, Path("t.json"))


def test_the_page_has_an_address_by_default() -> None:
    assert settings(URL, "--ui").listen == DEFAULT_LISTEN
    assert settings(URL, "--listen", ":9000").listen == ("0.0.0.0", 9000)


def test_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "watch.toml"
    file.write_text(f'[watch]\nurls = ["{URL}", "http://b:1"]\nfor = "30s"\nui = true\n')
    made = settings(config=str(file))
    assert made.urls == (URL, "http://b:1")
    assert (made.for_s, made.has_page) == (30.0, True)


def test_secrets_come_from_the_environment_and_are_not_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OUTDRAFT_API_KEY", "key-of-servers")
    monkeypatch.setenv("OUTDRAFT_WEBHOOK_SECRET", "key-of-webhook")
    monkeypatch.setenv("OUTDRAFT_ADMIN_KEY", "key-of-admin")
    made = settings(URL, "--webhook", "https://u:password@hook/x")
    assert made.api_key == "key-of-servers"
    assert made.webhook_secret == "key-of-webhook"
    assert made.admin_key == "key-of-admin"
    assert "key-of" not in repr(made)
    assert "password" not in repr(made)
    assert settings(URL, "--api-key", "given").api_key == "given"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "no server to watch"),
        (f"{URL} --since 1h", "--since says how far back"),
        (f'{URL} --selector job="vllm"', "--selector chooses among"),
        (f"{URL} --prometheus http://p:9090", "not both"),
        ("--prometheus ftp://user:password@p", "--prometheus takes an address"),
        (f"{URL} --interval soon", "--interval 'soon' is not a duration"),
        (f"{URL} --interval 10ms", "--interval 10ms is below 0.2 s"),
        (f"{URL} --interval 10s --window 15s", "--window 15s is shorter"),
        (f"{URL} --for 5s", "--for 5s is shorter"),
        (f"{URL} --json", "give --for"),
        (f"{URL} --webhook nowhere", "--webhook takes an address"),
        (f"{URL} --webhook http://[bad", "--webhook takes an address"),
        (f"{URL} --webhook-secret s", "give that too"),
        (f"{URL} --act-command x", "give that too"),
        (f"{URL} --act --act-command 'x", "cannot be split"),
        (f"{URL} --listen 9180", "is no address and port"),
        (f"{URL} --listen :99999", "is no address and port"),
        (f"{URL} --baseline nowhere", "is no folder"),
        (f"{URL} --gpu-hour-cost -1", "at least 0"),
    ],
)
def test_what_is_refused(words: str, said: str) -> None:
    with pytest.raises(OptionError) as caught:
        settings(*words.split())
    assert said in str(caught.value)
    assert "password" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        'job="vllm"',
        '{job="vllm"}',
        ' { job = "vllm" , } ',
        '{job=~"vllm|sglang",instance!="a:1", zone!~`x.*`}',
        "cluster='eu'",
        r'{job="a \"b\", {c}"}',
        "{_x1=''}",
    ],
)
def test_a_selector_is_taken_as_prometheus_writes_it(text: str) -> None:
    assert settings("--prometheus", "http://p:9090", "--selector", text).selector == text


@pytest.mark.parametrize(
    "text",
    ["vllm", "{}", "{job}", "job=vllm", '{job="vllm"', 'job="vllm"}', '{job=="vllm"}', '1a="b"',
     '{job="a"} or vector(1)', '{__name__="up"}', '{__name__=~".+",job="a"}', 'job="a" zone="b"',
     'job="a"}[1d]', 'job="a\nb"', '{job="a",,zone="b"}', 'jöb="a"'],
)  # fmt: skip
def test_what_is_no_selector(text: str) -> None:
    with pytest.raises(OptionError, match="is no list of labels and values"):
        settings("--prometheus", "http://p:9090", "--selector", text)
