"""Options that say which engine serves, and with what: shared by `emit` and `tune`."""

import shlex

from outdraft.backends.lookup import ENGINES
from outdraft.errors import OptionError
from outdraft.options import Option


def engine_name(text: str) -> str:
    return "outdraft" if text == "embedded" else text  # its earlier name


ENGINE = Option("--engine", ", ".join(ENGINES), type=engine_name, choices=ENGINES,
                also=("--backend",))  # fmt: skip
TENSOR_PARALLEL_SIZE = Option("--tensor-parallel-size", "GPUs of each host", default=1,
                              minimum=1)  # fmt: skip
ENGINE_FLAGS = Option("--engine-flags", "more flags of the engine, as one text", metavar="FLAGS")


def split_flags(engine_flags: str | None) -> tuple[str, ...]:
    """The words of --engine-flags, as a shell would split them."""
    try:
        return tuple(shlex.split(engine_flags or ""))
    except ValueError as error:
        raise OptionError(
            f"--engine-flags cannot be read ({error}), got {engine_flags!r}"
        ) from None
