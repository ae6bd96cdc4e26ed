"""Where the addresses of replicas come from."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outdraft.errors import OptionError
from outdraft.watch.alarms import KINDS
from outdraft.watch.replicas import Found, Replicas, name_replicas, read_targets


def names_of(found: Found) -> list[str]:
    return [each.name for each in found.replicas]


def urls_of(found: Found) -> list[str]:
    return [each.url for each in found.replicas]


def find(replicas: Replicas) -> Found:
    return asyncio.run(replicas.find())


def test_addresses_as_arguments() -> None:
    found = find(Replicas(["http://a:8000/v1", "b:9000", "https://c", "http://a:8000/v1"]))
    assert urls_of(found) == ["http://a:8000/v1", "http://b:9000", "https://c"]
    assert names_of(found) == ["a:8000", "b:9000", "c:443"]
    assert found.problems == ()


def test_names_are_short_unique_and_without_passwords() -> None:
    urls = ["http://u:secret@a:80/x", "http://a/y", "http://v:other@a/y", "http://[::1]:8000"]
    replicas = name_replicas(urls)
    assert [each.name for each in replicas] == ["a:80/x", "a:80/y", "a:80/y (2)", "[::1]:8000"]
    assert "secret" not in repr(replicas)


def test_a_name_has_the_scheme_where_the_port_does_not_tell_it() -> None:
    urls = ["https://a", "https://u:p@a:8443", "http://a:443", "https://b:8443/x", "https://b:8443"]
    names = [each.name for each in name_replicas(urls)]
    assert names == [
        "a:443", "https://a:8443", "http://a:443", "https://b:8443/x", "https://b:8443",
    ]  # fmt: skip
    commands = [KINDS["drafts_worthless"].alarm(name, 1.0, "figures").command for name in names]
    assert [each.split()[2] for each in commands] == [
        "https://a:443", "https://a:8443", "http://a:443", "https://b:8443/x", "https://b:8443",
    ]  # fmt: skip


@given(st.lists(st.sampled_from(["http://a", "http://a/x", "http://b:1", "http://u:p@a/x"])))
def test_names_are_unique(urls: list[str]) -> None:
    names = [each.name for each in name_replicas(urls)]
    assert len(set(names)) == len(names) == len(urls)


@pytest.mark.parametrize(
    "url", ["", "http://", "ftp://h", "http://h:port", "http://u:secret@", "dns://name",
            "http://h:99999", "http://h o", "http://h\n", "[", "http://[::1"],
)  # fmt: skip
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(OptionError, match=r"write e\.g\.") as refused:
        Replicas([url])
    assert "secret" not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "targets"
    file.write_text("# ours\nhttp://a:1  # the first\n\n  b:2\nhttp://a:1\n")
    replicas = Replicas(["c:3"], file)
    assert names_of(find(replicas)) == ["c:3", "a:1", "b:2"]
    file.write_text("http://d:4#x\n")
    assert names_of(find(replicas)) == ["c:3", "d:4"]
    file.write_text("http://u:secret@h:x\n")
    found = find(replicas)
    assert names_of(found) == ["c:3", "d:4"], "as it was"
    [problem] = found.problems
    assert "targets, line 1: 'http://***@h:x' is no address" in problem
    file.unlink()
    assert find(replicas).problems == (f"{file}: no such file or directory",)
    assert names_of(find(replicas)) == ["c:3", "d:4"]


def test_a_file_that_is_not_there_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="no such file"):
        Replicas([], tmp_path / "missing")
    with pytest.raises(OptionError, match="is a directory"):
        Replicas([], tmp_path)
    (tmp_path / "huge").write_bytes(b"#" * (5 << 20))
    with pytest.raises(OptionError, match="more than 4 MiB"):
        Replicas([], tmp_path / "huge")


def test_service_discovery_of_prometheus(tmp_path: Path) -> None:
    file = tmp_path / "sd.json"
    groups = [
        {"targets": ["a:1", "b:2"], "labels": {"job": "vllm"}},
        {"targets": ["c"], "labels": {"__scheme__": "https", "__metrics_path__": "/m/metrics"}},
        {"targets": []},
    ]
    file.write_text(json.dumps(groups))
    assert read_targets(file) == ("http://a:1", "http://b:2", "https://c/m/metrics")


@pytest.mark.parametrize(
    "content", ["[", "{}", '["a"]', '[{"targets": "a"}]', '[{"targets": [1]}]', "[" * 50_000,
                '[{"targets": [], "labels": 3}]'],
)  # fmt: skip
def test_wrong_service_discovery(tmp_path: Path, content: str) -> None:
    (tmp_path / "sd.json").write_text(content)
    with pytest.raises(OptionError, match="no file_sd JSON"):
        read_targets(tmp_path / "sd.json")


@given(st.binary(max_size=200))
def test_any_bytes_are_targets_or_an_error_in_one_line(content: bytes) -> None:
    with NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        with suppress(OptionError):
            read_targets(Path(file.name))
            return
        with pytest.raises(OptionError, match=r"\A[^\n]+\Z"):
            read_targets(Path(file.name))


class Names:
    def __init__(self) -> None:
        self.addresses: dict[str, list[str]] = {}
        self.asked: list[tuple[str, int]] = []

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        self.asked.append((host, port))
        if host not in self.addresses:
            raise OSError(-2, "Name or service not known")
        return self.addresses[host]


def test_a_name_with_many_addresses() -> None:
    names = Names()
    names.addresses["vllm"] = ["10.0.0.2", "10.0.0.1", "fd00::1", "10.0.0.1"]
    replicas = Replicas(["dns://u:secret@vllm:8000/m"], resolve=names.resolve)
    found = find(replicas)
    assert names_of(found) == ["10.0.0.1:8000", "10.0.0.2:8000", "[fd00::1]:8000"]
    assert urls_of(found)[2] == "http://u:secret@[fd00::1]:8000/m"
    assert names.asked == [("vllm", 8000)]
    names.addresses["vllm"] = ["10.0.0.3"]
    assert names_of(find(replicas)) == ["10.0.0.3:8000"], "they come and go"
    del names.addresses["vllm"]
    found = find(replicas)
    assert names_of(found) == ["10.0.0.3:8000"], "names that fail for a while take nobody away"
    assert found.problems == ("dns://***@vllm:8000/m: Name or service not known",)


def test_the_real_resolver() -> None:
    found = find(Replicas(["dns://localhost:8000"]))
    assert "127.0.0.1:8000" in names_of(found)


def test_not_more_than_so_many(tmp_path: Path) -> None:
    file = tmp_path / "targets"
    file.write_text("".join(f"host{number}:80\n" for number in range(1_500)))
    found = find(Replicas([], file))
    assert len(found.replicas) == 1_000
    assert found.problems == ("1,500 replicas; the first 1,000 are watched",)
