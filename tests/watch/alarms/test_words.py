from __future__ import annotations

import shlex

import pytest

from outdraft.observe.names import NAMES
from outdraft.watch.alarms import KINDS


@pytest.mark.parametrize(
    ("replica", "url"),
    [
        ("a:8000", "http://a:8000"),
        ("a:443", "https://a:443"),
        ("a:443/v2", "https://a:443/v2"),
        ("https://a:8443", "https://a:8443"),
        ("[::1]:80", "http://[::1]:80"),
        ("a:80/x (2)", "http://a:80/x (2)"),
        ("a; rm -rf ~ $(id)", "http://a; rm -rf ~ $(id)"),
        ("", "URL"),
    ],
)
def test_a_command_has_the_replica_as_one_word(replica: str, url: str) -> None:
    """Names come from files and labels."""
    command = KINDS["drafts_worthless"].alarm(replica, 1.0, "figures").command
    assert shlex.split(command) == ["outdraft", "bench", url, "--requests", "20"]
    asked = KINDS["nothing_proposed"].alarm(replica, 1.0, "figures").command
    assert shlex.split(asked)[:3] == ["curl", "-s", f"{url}/metrics"]


@pytest.mark.parametrize("model", ["meta/llama", "{engine}; rm -rf ~", "a 'b' $(id)"])
def test_a_command_has_the_model_and_the_engine_that_are_known(model: str) -> None:
    """Both may say what they like, too."""
    kind = KINDS["acceptance_decays"]
    command = kind.alarm("a:1", 1.0, "figures", model=model, engine="vllm").command
    assert shlex.split(command) == [
        "outdraft", "tune", "--engine", "vllm", "--target", model,
        "--prompts", "FILE-OF-RECENT-PROMPTS",
    ]  # fmt: skip
    odd = KINDS["deployment_step"].alarm("{model}", 1.0, "figures", model="'; id; '").command
    assert shlex.split(odd)[3] == "http://{model}"
    several = kind.alarm("a:1", 1.0, "figures", model="one,two").command
    assert shlex.split(several)[3:6] == ["YOUR-ENGINE", "--target", "one"]


def test_the_old_version_is_the_baseline_of_the_new_one() -> None:
    command = KINDS["deployment_step"].alarm("new:1", 1.0, "figures").command
    assert shlex.split(command)[:4] == [
        "outdraft", "compare", "URL-OF-THE-OLD-VERSION", "http://new:1",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "counter",
    ["vllm:spec_decode_num_drafts_total", "sglang:spec_verify_calls_total",
     "llamacpp:spec_decode_num_drafts_total"],
)  # fmt: skip
def test_what_is_looked_for_is_on_the_page_of_every_engine(counter: str) -> None:
    words = shlex.split(KINDS["nothing_proposed"].command)
    assert words[-2] == "grep"
    assert words[-1] in counter
    assert counter in NAMES
