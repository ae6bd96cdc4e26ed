from __future__ import annotations

import shlex

import pytest

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
