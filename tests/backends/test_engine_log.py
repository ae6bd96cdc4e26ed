from __future__ import annotations

from pathlib import Path

import pytest

from outdraft.backends.engine_log import (
    ended_itself,
    ending,
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


def by(process: str, *lines: str) -> list[str]:
    """As vLLM writes before each line that is logged as an error."""
    return [f"({process}) ERROR 11-16 14:02:09 [core.py:1104] {line}" for line in lines]


def printed(process: str, *lines: str) -> list[str]:
    """As vLLM writes before each line that is printed."""
    return [f"({process}) {line}" for line in lines]


CORE, SERVER = "EngineCore_DP0 pid=4711", "APIServer pid=4500"
NO_FREE_MEMORY = (
    "ValueError: Free memory on device cuda:0 (3.1/139.8 GiB) on startup is less than desired GPU "
    "memory utilization (0.9, 125.8 GiB). Decrease GPU memory utilization or reduce GPU memory "
    "used by other processes."
)
PROFILING = (
    "AssertionError: Error in memory profiling. Initial free memory 101.2 GiB, current free memory "
    "118.9 GiB."
)
SEE_ABOVE = (
    "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"
)


def traceback_of(exception: str) -> list[str]:
    return [
        "Traceback (most recent call last):",
        '  File "/opt/vllm/v1/engine/core.py", line 1095, in run_engine_core',
        "    engine_core = EngineCoreProc(*args, **kwargs)",
        *exception.split("\n"),
    ]


def vllm_log(cause: str) -> list[str]:
    """A start that fails: the traceback of the core twice, then the server's."""
    return [
        f"({SERVER}) INFO 11-16 14:01:30 [api_server.py:1977] vLLM API server version 0.22.1",
        f"({CORE}) INFO 11-16 14:01:40 [core.py:98] Initializing a V1 LLM engine (v0.22.1)",
        f"({CORE}) WARNING 11-16 14:01:41 [gpu.py:7] lower --max-num-seqs to avoid out of memory",
        *by(CORE, "EngineCore failed to start.", *traceback_of(cause)),
        *printed(CORE, "Process EngineCore_DP0:", *traceback_of(cause)),
        "[rank0]:[W1116 14:02:10 ProcessGroupNCCL.cpp:1538] Warning: destroy_process_group() was "
        "not called before program exit",
        *printed(SERVER, *traceback_of(SEE_ABOVE)),
    ]


@pytest.mark.parametrize(
    "cause",
    [
        NO_FREE_MEMORY,
        PROFILING,
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
        "capacity of 139.80 GiB of which 1.12 GiB is free.",
        "RuntimeError: operator torchvision::nms does not exist",
        "Exception: no kernel for this device",
        "torch.cuda.CudaError: invalid device ordinal",
    ],
)
def test_the_cause_of_a_start_of_vllm_that_failed(cause: str) -> None:
    lines = vllm_log(cause)
    assert reason(lines) == cause[:300]
    # Two processes that write at the same time, one of them into the other's line
    mixed = [each for pair in zip(lines, reversed(lines), strict=True) for each in pair]
    assert cause[:300] in str(reason(mixed))
    into = [f"({SERVER}) loading{each}" if each.endswith(cause) else each for each in lines]
    assert reason(into) == cause[:300]


def test_no_free_memory_is_a_lack_of_memory_and_a_change_of_it_is_none() -> None:
    assert out_of_memory(vllm_log(NO_FREE_MEMORY)) == NO_FREE_MEMORY
    assert out_of_memory(vllm_log(PROFILING)) is None


def test_advice_about_memory_is_no_lack_of_it() -> None:
    advice = "(EngineCore_DP0 pid=7) INFO 11-16 14:00:00 [gpu.py:1] if it runs out of memory, …"
    assert out_of_memory([advice, "0.00.005.868 W load: failed to allocate, trying again"]) is None


def test_of_several_processes_the_one_that_failed_first_says_why() -> None:
    first, second = "Worker_TP0 pid=81", "Worker_TP1 pid=82"
    cause = "RuntimeError: CUDA error: an illegal memory access was encountered"
    late = "torch.distributed.DistBackendError: NCCL error: remote process exited"
    lines = [
        *by(first, "WorkerProc failed to start.", *traceback_of(cause)[:2]),
        *by(second, "WorkerProc failed to start.", *traceback_of(late)),
        *by(first, *traceback_of(cause)[2:]),
        *by(
            CORE,
            "EngineCore failed to start.",
            *traceback_of(
                "Exception: WorkerProc initialization failed due to an exception in a background "
                "process. See stack trace for root cause."
            ),
        ),
        *printed(SERVER, *traceback_of(SEE_ABOVE)),
        *printed(SERVER, *traceback_of("ConnectionResetError: [Errno 104] reset by peer")),
    ]
    assert reason(lines) == cause


def test_an_exception_from_another_is_the_one_that_was_meant_to_be_read() -> None:
    link = "The above exception was the direct cause of the following exception:"
    wanted = "ValueError: the draft has no config.json"
    chain = [*traceback_of("OSError: [Errno 2] no such file"), link, *traceback_of(wanted)]
    again = traceback_of("RuntimeError: while the engine was taken down")
    lines = [
        *by(CORE, "EngineCore failed to start.", *chain, *again),
        *printed(SERVER, *traceback_of(SEE_ABOVE)),
    ]
    assert reason(lines) == wanted


def test_a_message_below_its_exception_is_shown_with_it() -> None:
    first = "pydantic_core._pydantic_core.ValidationError: 1 validation error for SpeculativeConfig"
    below = "  Value error, num_speculative_tokens must be above 0 [type=value_error]"
    wordless = traceback_of("AssertionError")
    wordless[-2] = "    assert draft.vocab_size == target.vocab_size"
    assert reason(printed(SERVER, *traceback_of(f"{first}\n{below}"))) == (
        f"{first}: {below.strip()}"
    )
    assert reason(by(CORE, "EngineCore failed to start.", *wordless)) == (
        "AssertionError (assert draft.vocab_size == target.vocab_size)"
    )


def test_a_core_that_was_killed_left_no_exception() -> None:
    killed = SEE_ABOVE.replace("{}", "{'EngineCore_DP0': -9}")
    why = str(reason(printed(SERVER, "starting", *traceback_of(killed))))
    assert why.startswith("its process EngineCore_DP0 was ended by SIGKILL")
    crashed = SEE_ABOVE.replace("{}", "{'EngineCore_DP0': -11}")
    assert "ended by SIGSEGV" in str(reason(printed(SERVER, *traceback_of(crashed))))


@pytest.mark.slow
def test_a_cause_far_above_the_end_is_found(tmp_path: Path) -> None:
    cause = "ValueError: the head was trained for another target"
    lines = vllm_log(cause)
    noise = [f"h200:4711:4712 [0] NCCL INFO Channel {i:05d} : 0 -> 1" for i in range(20_000)]
    (log := tmp_path / "log").write_text("\n".join([*lines[:-4], *noise, *lines[-4:]]))
    assert reason(tail(log)) != cause
    assert reason(ending(log)) == cause
    (tmp_path / "quiet").write_text("\n".join([*noise, "bye"]))
    assert reason(ending(tmp_path / "quiet")) == "bye"


def test_the_scheduler_of_sglang_says_why() -> None:
    cause = "RuntimeError: Not supported head size 80"
    stamp = "[2026-11-16 14:03:11 TP0]"
    lines = [
        f"{stamp} Init torch distributed begin.",
        "ImportError: cannot import name 'nvtx' (ignored)",
        f"{stamp} Scheduler hit an exception: Traceback (most recent call last):",
        *traceback_of(cause)[1:],
        "",
        "[2026-11-16 14:03:12] Rank 0 scheduler is dead. Please check if there are relevant logs.",
        *traceback_of("EOFError"),
        "[2026-11-16 14:03:12] Received sigquit from a child process. It usually means the child "
        "failed.",
        "[2026-11-16 14:03:12] kill_process_tree called: parent_pid=7, include_parent=True",
    ]
    assert reason([each for each in lines if each]) == cause


def test_a_warning_of_llamacpp_is_no_cause() -> None:
    lines = [
        "0.00.003.100 W common_init: the chat template cannot be parsed, another one is used",
        "0.00.004.220 E llama_model_load: error loading model: unknown model architecture: 'x'",
        "0.00.004.300 E srv load_model: failed to load model, '/models/x.gguf'",
        "0.00.004.400 E srv init: exiting due to model loading error",
    ]
    assert "unknown model architecture" in str(reason(lines))
    failed = "cudaMalloc failed: out of memory"
    memory = f"0.01.004.220 E ggml_backend_cuda_buffer_type_alloc_buffer: {failed}"
    assert reason([*lines[:1], memory, *lines[2:]]) == memory


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
