from __future__ import annotations

import os
from pathlib import Path

import pytest

from outdraft.measure.machine import describe_client, describe_machine, gpu_ids, gpu_names


def test_what_differs_between_machines_and_not_from_minute_to_minute() -> None:
    first, second = describe_machine(), describe_machine()
    assert first == second
    assert first["cores"] == len(os.sched_getaffinity(0))
    assert first["memory_gib"] >= 1
    assert first.items() <= describe_client().items()
    assert "load_average" not in first


@pytest.mark.parametrize(
    ("visible", "names"),
    [
        (None, ["A", "B B", "C"]),
        ("2,0", ["C", "A"]),
        (" 1 ,2", ["B B", "C"]),
        ("", []),
        ("-1", []),
        ("7", []),
        ("1,-1,0", ["B B"]),
        ("none", []),
        ("GPU-1a2b", ["A", "B B", "C"]),
        ("MIG-1a2b", ["A", "B B", "C"]),
    ],
)
def test_gpus_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, visible: str | None, names: list[str]
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\nprintf 'A\\nB B\\nC\\n'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert gpu_names({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}) == names


def test_a_broken_driver_is_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed'; exit 9\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert gpu_names({}) == []


@pytest.mark.parametrize(
    ("visible", "ids"),
    [
        (None, ["0", "1", "2"]),
        ("2,0", ["2", "0"]),
        ("", []),
        ("GPU-1a2b, GPU-3c4d", ["GPU-1a2b", "GPU-3c4d"]),
    ],
)
def test_gpus_as_engines_are_told_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, visible: str | None, ids: list[str]
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\nprintf '0\\n1\\n2\\n'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert gpu_ids({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}) == ids
