"""`outdraft generate`: writes one text as it comes, and what speculation did for it."""

import argparse
import json
import sys
from typing import Any

from outdraft.cli.progress import show_loading, show_runs
from outdraft.engine.outputs import Generation
from outdraft.engine.settings import engine_settings, sampling_params, speculation_from
from outdraft.errors import OptionError
from outdraft.speculation import Speculation

_MAX_PROMPT_BYTES = 16 << 20


def run(args: argparse.Namespace) -> int:
    # All options are checked before a model is loaded.
    speculation = speculation_from(args)
    if args.compare and speculation.is_off:
        raise OptionError("--compare needs something to compare with off; choose a --method")
    params = sampling_params(args)
    prompt = _read_prompt(args.prompt)
    # torch and tokenizers: only an engine needs them, not --help.
    from outdraft.cli import generation as text

    with show_loading() as shown:
        engine = text.load_engine(
            args.target, speculation, **engine_settings(args), progress=None, **shown
        )
    tokens = text.encode_prompt(engine, prompt, raw=args.raw)
    if args.compare:  # also before the text that is shown: its speed is printed too
        text.warm_up(engine, tokens)
    if args.json:
        generation, rounds = text.read_generation(engine, tokens, params)
    else:
        generation, rounds = text.show_generation(engine, tokens, params, args.color)
    comparison = None
    if args.compare:
        with show_runs() as on_run:
            comparison = text.compare_with_off(
                engine, tokens, params, generation, args.runs, on_run
            )
    if args.json:
        told = _to_json(generation, engine.speculation, comparison)
        if args.explain:
            told["rounds"] = [text.explained(each) for each in rounds]
        print(json.dumps(told))
    else:
        if args.explain:
            text.show_rounds(rounds, args.color)
        text.show_summary(generation, engine.speculation, comparison, args.color)
    return 0


def _read_prompt(prompt: str) -> str:
    if prompt != "-":
        # Bytes that are not UTF-8 arrive as lone surrogates, which no tokenizer accepts.
        return prompt.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    text = sys.stdin.buffer.read(_MAX_PROMPT_BYTES + 1)
    if len(text) > _MAX_PROMPT_BYTES:
        raise OptionError(f"the prompt on stdin is over {_MAX_PROMPT_BYTES >> 20} MiB; shorten it")
    return text.decode("utf-8", errors="replace")


def _to_json(
    generation: Generation, speculation: Speculation, comparison: dict[str, Any] | None
) -> dict[str, Any]:
    acceptance = generation.acceptance
    result = {
        "text": generation.text,
        "token_ids": generation.tokens,
        "prompt_tokens": generation.num_prompt_tokens,
        "seed": generation.seed,
        "finish_reason": generation.finish_reason.value if generation.finish_reason else None,
        "speculation": {
            "method": speculation.method,
            "k": 0 if speculation.is_off else speculation.k,
            "rule": speculation.rule,
            "lossy": generation.is_lossy,
            "num_drafts": acceptance.num_drafts,
            "num_draft_tokens": acceptance.num_draft_tokens,
            "num_accepted_tokens": acceptance.num_accepted_tokens,
            "acceptance_rate": acceptance.rate,
            "acceptance_length": acceptance.length,
            "accepted_per_position": acceptance.accepted_per_position,
        },
        "timing": {
            name: getattr(generation, name) for name in ("ttft_s", "decode_s", "tokens_per_s")
        },
    }
    return result if comparison is None else {**result, "compare": comparison}
