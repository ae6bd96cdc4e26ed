from __future__ import annotations

import os
from pathlib import Path

import pytest

from outdraft.measure.machine import (
    describe_client,
    describe_machine,
    gpu_ids,
    gpu_memory,
    gpu_names,
)


def test_what_differs_between_machines_and_not_from_minute_to_minute() -> None:
    first, second = describe_machine(), describe_machine()
    assert first == second
    assert first["cores"] == len(os.sched_getaffinity(0))
    assert first["memory_gib"] >= 1
    assert first.items() <= describe_client().items()
    assert "load_average" not in first


NVIDIA_SMI = """#!/bin/sh
case "$1" in
--query-gpu=uuid,name) printf 'GPU-1a2b, A\\nGPU-1c4d, B B\\nGPU-5e6f, C\\n' ;;
--query-gpu=uuid,memory.total,memory.free)
    printf 'GPU-1a2b, 80, 79\\nGPU-1c4d, 80, 20\\nGPU-5e6f, 40, 39\\n' ;;
-L) cat <<'END' ;;
GPU 0: A (UUID: GPU-1a2b)
GPU 1: B B (UUID: GPU-1c4d)
  MIG 3g.20gb     Device  0: (UUID: MIG-77aa)
  MIG 3g.20gb     Device  1: (UUID: MIG-88bb)
GPU 2: C (UUID: GPU-5e6f)
END
esac
"""


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = tmp_path / "nvidia-smi"
    program.write_text(NVIDIA_SMI)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return program


@pytest.mark.usefixtures("nvidia_smi")
@pytest.mark.parametrize(
    ("visible", "ids", "names"),
    [
        (None, ["0", "1", "2"], ["A", "B B", "C"]),
        ("2,0", ["2", "0"], ["C", "A"]),
        (" 1 ,2", ["1", "2"], ["B B", "C"]),
        ("", [], []),
        ("-1", [], []),
        ("7", [], []),
        ("1,-1,0", ["1"], ["B B"]),
        ("none", [], []),
        ("GPU-1c4d", ["GPU-1c4d"], ["B B"]),
        ("GPU-5e, GPU-1a", ["GPU-5e", "GPU-1a"], ["C", "A"]),
        ("GPU-9999", [], []),
        ("MIG-88bb", ["MIG-88bb"], ["B B"]),
    ],
)
def test_gpus_that_are_visible(visible: str | None, ids: list[str], names: list[str]) -> None:
    env = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert gpu_ids(env) == ids, "as engines are told of them"
    assert gpu_names(env) == names


@pytest.mark.usefixtures("nvidia_smi")
def test_memory_of_gpus_that_are_visible() -> None:
    mib = 1 << 20
    assert gpu_memory({})[1] == (80 * mib, 20 * mib)
    assert gpu_memory({"CUDA_VISIBLE_DEVICES": "GPU-5e6f"}) == [(40 * mib, 39 * mib)]
    assert gpu_memory({"CUDA_VISIBLE_DEVICES": "MIG-77aa"}) == [], "not that of the whole"


def test_a_broken_driver_is_no_gpu(nvidia_smi: Path) -> None:
    nvidia_smi.write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed'; exit 9\n")
    assert gpu_names({}) == []
    nvidia_smi.write_text("#!/bin/sh\necho 'No devices were found'\n")
    assert gpu_names({}) == []
