"""Runs in vLLM's own Python: its parser and its checks, on the commands from standard input.

In: a JSON list of commands. Out: a JSON list, for each null or what vLLM had against it. A command
for several hosts, or one that needs a package that is not here, is parsed only.
"""

import json
import sys
from importlib import import_module


def first(name, *modules):
    for module in modules:
        try:
            return getattr(import_module(module), name)
        except (ImportError, AttributeError):
            pass
    raise SystemExit(f"no {name} in {modules}")


def complaint(argv):
    from vllm.engine.arg_utils import AsyncEngineArgs

    assert argv[:2] == ["vllm", "serve"], argv[:2]
    try:
        args = parser.parse_args(argv[2:])
        args.model = args.model_tag if getattr(args, "model_tag", None) else args.model
        validate(args)
        engine_args = AsyncEngineArgs.from_cli_args(args)
        if engine_args.pipeline_parallel_size > 1 or "suffix" in str(args.speculative_config):
            return None
        made = engine_args.create_engine_config()
        wanted = engine_args.speculative_config
        if (made.speculative_config is None) != (wanted is None):
            return "speculation got lost"
    except SystemExit as error:
        return f"the parser refused it: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:600]
    return None


if __name__ == "__main__":
    make = first(
        "make_arg_parser", "vllm.entrypoints.launchers.cli_args", "vllm.entrypoints.openai.cli_args"
    )
    validate = first(
        "validate_parsed_serve_args",
        "vllm.entrypoints.launchers.cli_args",
        "vllm.entrypoints.openai.cli_args",
    )
    Parser = first("FlexibleArgumentParser", "vllm.utils.argparse_utils", "vllm.utils")
    parser = make(Parser())
    print("ANSWER " + json.dumps([complaint(argv) for argv in json.load(sys.stdin)]))
