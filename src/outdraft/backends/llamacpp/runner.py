"""llama-server without its binary: llama.cpp's own parser and server out of the package xllamacpp.

    python runner.py -m model.gguf --port 8080 --metrics …

Takes every flag that llama-server takes, because llama.cpp's own parser reads them: xllamacpp
carries that parser but offers no call for it, so it is called by its C++ name, on the parameters
inside a `CommonParams` object. What has to hold for that is checked first. Run as a file with any
Python that has xllamacpp; nothing else is imported.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

# bool common_params_parse(int, char **, common_params &, llama_example, void (*)(int, char **))
_PARSE = "_Z19common_params_parseiPPcR13common_params13llama_examplePFviS0_E"
_LOG, _LOG_PAUSE = "_Z15common_log_mainv", "_Z16common_log_pauseP10common_log"
_ONLY_A_SERVER_HAS = "--slots"
_MAX_EXAMPLES = 64  # programs that llama.cpp's parser knows; the server is one of them
_MARK = 123_457

Parse = Callable[[Sequence[str], int], bool]


def run_server(arguments: Sequence[str]) -> None:
    try:
        xllamacpp = import_module("xllamacpp")
        library = str(import_module("xllamacpp.xllamacpp").__file__)
    except ImportError as error:
        sys.exit(f"error: xllamacpp cannot be imported: {error}")
    params = xllamacpp.CommonParams()
    parse = _parser(library, params)
    if parse is None:
        sys.exit(
            f"error: xllamacpp {xllamacpp.__version__} does not let its argument parser be called; "
            "install version 2026.10.11549, or use a real llama-server"
        )
    # Parsing leaves defaults behind, so the search for the number has parameters of its own.
    scratch = xllamacpp.CommonParams()
    example = _server_example(_parser(library, scratch) or parse)
    if not parse(arguments, example):  # --help and --version end the process in there
        sys.exit(1)
    if params.n_parallel < 0:  # what llama-server's own main does with "auto"
        params.n_parallel, params.kv_unified = 4, True
    try:
        server = xllamacpp.Server(params)
    except RuntimeError as error:
        _write_out_log(library)
        sys.exit(f"error: {error}")
    print(f"listening on {server.listening_address}", file=sys.stderr, flush=True)
    for number in (signal.SIGTERM, signal.SIGINT):
        # The server has no way to stop: end the process, as its owner does in the end.
        signal.signal(number, lambda *_: os._exit(0))
    while True:
        signal.pause()


def _parser(library: str, params: Any) -> Parse | None:
    """None where the parameters are not where they have to be, or the parser has another name.

    `params` has to stay alive: what is returned only knows its address.
    """
    try:
        function = getattr(ctypes.CDLL(library), _PARSE)
    except AttributeError:
        return None
    function.restype = ctypes.c_bool
    # The C++ object lies right after Python's own header, and n_predict is its first field.
    start = id(params) + object.__basicsize__
    default, params.n_predict = params.n_predict, _MARK
    is_there = ctypes.c_int32.from_address(start).value == _MARK
    params.n_predict = default
    if not is_there:
        return None

    def parse(arguments: Sequence[str], example: int) -> bool:
        words = [b"llama-server", *(os.fsencode(each) for each in arguments)]
        argv = (ctypes.c_char_p * (len(words) + 1))(*words, None)
        return bool(function(len(words), argv, ctypes.c_void_p(start), example, None))

    return parse


def _write_out_log(library: str) -> None:
    """llama.cpp logs from a thread that dies with the process: the reason would be lost."""
    functions = ctypes.CDLL(library)
    with suppress(AttributeError):  # another version: nothing that could be done
        log, pause = getattr(functions, _LOG), getattr(functions, _LOG_PAUSE)
        log.restype = ctypes.c_void_p
        pause(ctypes.c_void_p(log()))


def _server_example(parse: Parse) -> int:
    """The parser's number for "server" differs between versions: the one that knows its flag."""
    sys.stderr.flush()  # the parser writes what it does not know straight to file descriptor 2
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        return next(n for n in range(_MAX_EXAMPLES) if parse([_ONLY_A_SERVER_HAS], n))
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


if __name__ == "__main__":
    run_server(sys.argv[1:])
