"""Runs in SGLang's own Python: its parser, on the commands from standard input.

In: a JSON list of commands, each with the text of its adaptive file or null. Out: a JSON list, for
each what SGLang had against it (or null), and its draft lengths for batches of 1 to 64.
"""

import argparse
import contextlib
import io
import json
import sys
import tempfile


def verdict(argv, adaptive):
    from sglang.srt.server_args import ServerArgs

    assert argv[1:3] == ["-m", "sglang.launch_server"], argv[:3]
    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            args = ServerArgs.from_cli_args(parser.parse_args(argv[3:]))
        if adaptive is None:
            return [None, None]
        return [None, lengths(args, adaptive)]
    except SystemExit:
        return [said.getvalue().strip().splitlines()[-1], None]
    except Exception as error:
        return [f"{type(error).__name__}: {error}"[:600], None]


def lengths(args, adaptive):
    from sglang.srt.speculative.adaptive_spec_params import (
        AdaptiveSpeculativeParams,
        resolve_candidate_steps_from_config,
    )

    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write(adaptive)
        file.flush()
        steps = args.speculative_num_steps
        assert steps in resolve_candidate_steps_from_config(file.name), "steps in no band"
        params = AdaptiveSpeculativeParams(steps, file.name)
    for _ in range(50):  # whatever is accepted, a band keeps its one length
        params.on_verify_complete([0, 0], 2)
        params.on_verify_complete([steps] * 40, 40)
    return [params.get_steps_for_batch(size) for size in range(1, 65)]


if __name__ == "__main__":
    print("ANSWER " + json.dumps([verdict(*each) for each in json.load(sys.stdin)]))
