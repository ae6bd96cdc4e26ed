from __future__ import annotations

from pathlib import Path

import pytest

from outdraft.backends.engine_log import (
    ended_itself,
    is_address_taken,
    last_line,
    out_of_memory,
    reason,
    tail,
)

LLAMACPP = [
    "0.00.002.441 W srv init: security: no API key is set and CORS allows all origins",
    "0.00.005.775 I srv load_model: loading model '/models/bad.gguf'",
    "0.00.005.868 E gguf_init_from_reader: invalid magic characters: 'junk', expected 'GGUF'",
    "0.00.005.932 E llama_model_load_from_file_impl: failed to load model",
    "0.00.005.962 E srv load_model: failed to load model, '/models/bad.gguf'",
    "0.00.006.275 E srv init: exiting due to model loading error",
]
VLLM = [
    "(EngineCore pid=7) ERROR 11-15 09:00:00 [core.py:900] EngineCore failed to start.",
    "(EngineCore pid=7) ERROR 11-15 09:00:00 [core.py:900] Traceback (most recent call last):",
    '(EngineCore pid=7) ERROR 11-15 09:00:00 [core.py:900]   File "x.py", line 1, in init',
    "(EngineCore pid=7) ERROR 11-15 09:00:00 [core.py:900] ValueError: max_model_len is 9999",
    "(APIServer pid=3) RuntimeError: Engine core initialization failed. See root cause above.",
]
TOO_LARGE = [
    "ValueError: To serve at least one request with max seq len 131072, 16.0 GiB KV cache is "
    "needed, which is larger than the available KV cache memory (3.2 GiB).",
    "RuntimeError: Engine core initialization failed. See root cause above.",
]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (LLAMACPP, "invalid magic characters"),
        (VLLM, "max_model_len is 9999"),
        (TOO_LARGE, "16.0 GiB KV cache"),
        (["outdraft: no file or folder at ./nothing; give one"], "no file or folder at"),
        (["outdraft: tiny (off) at http://127.0.0.1:1", "outdraft: the engine stopped: x"], "x"),
        (["starting", "all is well"], "all is well"),
    ],
)
def test_the_line_that_says_why(lines: list[str], words: str) -> None:
    assert words in str(reason(lines))


def test_an_empty_log_says_nothing() -> None:
    assert reason([]) is None


@pytest.mark.parametrize(
    "line",
    [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size 1234",
        "ValueError: 16.0 GiB KV cache is needed, which is larger than the available memory",
        "terminate called after throwing an instance of 'std::bad_alloc'",
        "Killed",
    ],
)
def test_memory_is_recognised(line: str) -> None:
    assert out_of_memory(["loading", line, "exiting"]) == line
    assert reason([line, "RuntimeError: something else"]) == line


def test_other_words_about_memory_are_no_shortage() -> None:
    assert out_of_memory(["KV cache memory: 3.2 GiB", "memory profiling took 1 s"]) is None


def test_colours_and_progress_bars_are_taken_off(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"\x1b[31mred\x1b[0m\n\n loading 1%\rloading 100%\r\n")
    assert tail(log) == ["red", "loading 100%"]
    assert last_line(log) == "loading 100%"


def test_a_long_log_is_read_from_its_end(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("x" * 300 + "\n" + "filler\n" * 100_000 + "y" * 1000 + "\n")
    assert len(last_line(log)) == 300
    assert tail(tmp_path / "nothing") == []


def test_a_taken_address_is_recognised() -> None:
    assert is_address_taken(["E srv start: couldn't bind HTTP server socket, port: 8361"])
    assert is_address_taken(["OSError: [Errno 98] Address already in use"])
    assert not is_address_taken(LLAMACPP)


def test_an_engine_that_ends_itself_by_signal_9_says_why() -> None:
    """SGLang does, when its scheduler has failed."""
    lines = [
        "SafetensorError: Error while deserializing header: header too large",
        "[12:00:00] Received sigquit from a child process. It usually means the child failed.",
        "[12:00:00] kill_process_tree called: parent_pid=7, include_parent=True, pid=7",
    ]
    assert ended_itself(lines)
    assert reason(lines) == lines[0]
    crashed = "[12:00:00] Subprocess scheduler_0 (pid=8) crashed with exit code -9."
    early = ["Cannot detect CUDA architecture.", "The server is fired up and ready to roll!"]
    assert reason([*early, crashed, *lines[1:]]) == crashed
    assert not ended_itself(["ready"])
