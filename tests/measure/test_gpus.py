"""nvidia-smi, stood in for by a script; a dcgm-exporter's page, served."""

from __future__ import annotations

import stat
import time
from pathlib import Path

import pytest

from outdraft.errors import OptionError
from outdraft.measure.gpus import check_page, is_here, polled_gpus, read_gpus
from outdraft.report.tables import gpu_lines
from outdraft.testing.fake_server import refusing_url
from tests.measure.exporter import PAGE, served_page

URL = "http://127.0.0.1:8000/v1"


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}:/bin:/usr/bin")


def wait_for(samples: list[object], count: int) -> None:
    until = time.monotonic() + 10
    while len(samples) < count and time.monotonic() < until:
        time.sleep(0.01)


def test_memory_and_how_busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = "echo '0, 2048, 50'; echo '1, 512, [N/A]'; echo '2, 1024, 7'"
    stand_in(tmp_path, monkeypatch, f"echo $@ > {tmp_path}/asked; {lines}; exec sleep 60")
    with polled_gpus(URL) as samples:
        wait_for(samples, 5)  # type: ignore[arg-type]
    assert [(each.name, each.value) for each in samples] == [
        ("gpu0_memory_gib", 2.0),
        ("gpu0_busy_share", 0.5),
        ("gpu1_memory_gib", 0.5),
        ("gpu2_memory_gib", 1.0),
        ("gpu2_busy_share", 0.07),
    ]
    assert "--loop-ms=500" in (tmp_path / "asked").read_text()


@pytest.mark.parametrize("script", ["exit 9", "echo 'No devices were found'", "echo a,b,c"])
def test_where_it_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    stand_in(tmp_path, monkeypatch, script)
    with polled_gpus(URL) as samples:
        time.sleep(0.05)
    assert samples == []


def test_where_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with polled_gpus(URL) as samples:
        assert samples == []


def test_the_gpus_of_this_machine_are_not_those_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, monkeypatch, f"touch {tmp_path}/asked")
    with polled_gpus("http://gpu-box:8000") as samples:
        time.sleep(0.05)
    assert samples == []
    assert not (tmp_path / "asked").exists()
    assert [is_here(f"http://{each}:1") for each in ("localhost", "127.0.0.9", "[::1]", "10.0.0.1")
            ] == [True, True, True, False]  # fmt: skip


def test_how_it_is_said() -> None:
    metrics = {
        "gpu10_memory_gib_max": 3.25, "gpu10_memory_gib_mean": 3.0,
        "gpu0_memory_gib_max": 70.0, "gpu0_busy_share_mean": 0.931, "gpu0_busy_share_max": 1.0,
        "kv_cache_usage_max": 0.5,
    }  # fmt: skip
    assert list(gpu_lines(metrics)) == [
        "0: 70.0 GiB in use at most, busy 93 % of the time",
        "10: 3.2 GiB in use at most",
    ]
    assert list(gpu_lines({"kv_cache_usage_max": 0.5})) == []


def test_an_exporters_page() -> None:
    assert read_gpus(PAGE) == {
        "gpu0_memory_gib": 70.0,
        "gpu0_busy_share": 0.93,
        "gpu1_memory_gib": 2.0,
        "gpu1_busy_share": 0.0,
    }
    assert read_gpus("# nothing of a GPU\nup 1\n") == {}


def test_the_gpus_of_another_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, monkeypatch, f"touch {tmp_path}/asked")
    with served_page(PAGE) as url:
        check_page(url)
        for server in ("http://gpu-box:8000", URL):
            with polled_gpus(server, url) as samples:
                wait_for(samples, 8)  # type: ignore[arg-type]
            assert len(samples) >= 8, "asked again and again"
            assert {(each.name, each.value) for each in samples} == set(read_gpus(PAGE).items())
    assert not (tmp_path / "asked").exists(), "what is named is asked, also of this machine"


def test_a_page_that_tells_of_no_gpus_is_said_before_the_load() -> None:
    with served_page("up 1\n") as url:
        with pytest.raises(OptionError, match="tells of no DCGM_FI_DEV_FB_USED or DCGM_FI_DEV_GPU"):
            check_page(url)
        secret = url.replace("http://", "http://me:secret@")
        with pytest.raises(OptionError) as refused:
            check_page(f"{secret}/nothing")
    assert "http 404" in str(refused.value)
    assert "secret" not in str(refused.value)
    with pytest.raises(OptionError, match="connection refused; name the page of a dcgm-exporter"):
        check_page(refusing_url())
