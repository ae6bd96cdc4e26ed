"""`outdraft generate`: one prompt, its text as it comes, and what speculation did for it."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from typing import TYPE_CHECKING, Any

from outdraft.cli.options import (
    SAMPLING,
    SPECULATION,
    TARGET,
    add_options,
    engine_settings,
    speculation_from,
)
from outdraft.errors import OptionError, unknown_choice

if TYPE_CHECKING:
    from outdraft.engine.engine import Engine
    from outdraft.engine.outputs import Generation
    from outdraft.engine.sequence import SamplingParams
    from outdraft.speculation import Speculation

_EXAMPLES = """\
examples:
  outdraft generate "Why is the sky blue?"
  outdraft generate "Say it twice: the cat sat on the mat" --method ngram --k 5 --compare
  outdraft generate - --method suffix --temperature 0.8 --seed 7 < prompt.txt
  outdraft generate "Hello" --target ./my-model --method draft_model --draft ./my-draft
  outdraft generate "Hello" --json | jq .speculation.acceptance_rate
"""

_COLOURS = ("auto", "always", "never")
_MAX_PROMPT_BYTES = 16 << 20


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "generate",
        help="write one text, with or without speculation",
        usage="outdraft generate PROMPT [options]",
        description="Write one text. Draft tokens that were accepted and the target's own tokens "
        "come in two colours; the last line says what speculation did.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("prompt", metavar="PROMPT", help="the prompt; - reads it from stdin")
    add_options(parser, "target", TARGET)
    add_options(parser, "speculation", SPECULATION)
    add_options(parser, "sampling", SAMPLING)
    group = parser.add_argument_group("output")
    group.add_argument("--raw", action="store_true", help="do not apply the chat template")
    group.add_argument(
        "--compare",
        action="store_true",
        help="time it against the same engine with speculation off, the two taking turns",
    )
    group.add_argument(
        "--runs", type=int, default=3, metavar="N", help="of each, for --compare (default: 3)"
    )
    group.add_argument("--json", action="store_true", help="print one JSON object, nothing else")
    group.add_argument(
        "--color", default="auto", metavar="WHEN", help=f"{', '.join(_COLOURS)} (default: auto)"
    )
    parser.add_argument("--debug", action="store_true", help=argparse.SUPPRESS)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    # Cheap checks first: nobody should wait for a model to learn of a typing error.
    speculation = speculation_from(args)
    if args.color not in _COLOURS:
        raise unknown_choice("--color", args.color, _COLOURS)
    if args.runs < 1:
        raise OptionError(f"--runs must be at least 1, got {args.runs}")
    if args.compare and speculation.is_off:
        raise OptionError("--compare needs something to compare with off; choose a --method")
    prompt = _read_prompt(args.prompt)

    from outdraft.cli.show import loading, show_generation, show_summary

    try:
        from outdraft.engine.assemble import load_engine
    except ImportError as error:
        raise OptionError(
            f"the engine needs a package that is not here ({error.name}); "
            "run pip install 'outdraft[engine]'"
        ) from error

    params = _sampling_params(args)
    with loading() as on_layer:
        engine = load_engine(
            args.target,
            speculation,
            **engine_settings(args),
            progress=None,
            on_layer=on_layer,
        )
    tokens = _prompt_tokens(engine, prompt, raw=args.raw)
    if args.compare:
        _warm_up(engine, tokens)
    if args.json:
        [generation] = engine.generate([tokens], params)
    else:
        generation = show_generation(engine, tokens, params, args.color)
    comparison = _compare(engine, tokens, params, generation, args.runs) if args.compare else None
    if args.json:
        print(json.dumps(_as_json(generation, speculation, comparison)))
    else:
        show_summary(generation, speculation, comparison, args.color)
    return 0


def _read_prompt(prompt: str) -> str:
    if prompt != "-":
        # Bytes that are no UTF-8 reach us as lone surrogates, which no tokenizer takes.
        return prompt.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    text = sys.stdin.buffer.read(_MAX_PROMPT_BYTES + 1)
    if len(text) > _MAX_PROMPT_BYTES:
        raise OptionError(f"the prompt on stdin is over {_MAX_PROMPT_BYTES >> 20} MiB; shorten it")
    return text.decode("utf-8", errors="replace")


def _sampling_params(args: argparse.Namespace) -> SamplingParams:
    from outdraft.engine.sequence import SamplingParams

    names = [option.key for option in SAMPLING if option.key not in ("logit_bias", "stop")]
    return SamplingParams(
        **{name: getattr(args, name) for name in names},
        logit_bias=dict(args.logit_bias or ()),
        stop=tuple(args.stop or ()),
    )


def _prompt_tokens(engine: Engine, prompt: str, *, raw: bool) -> list[int]:
    if raw or engine.tokenizer.chat_template is None:
        return engine.tokenizer.encode(prompt)
    return engine.tokenizer.apply_chat([{"role": "user", "content": prompt}])


def _warm_up(engine: Engine, tokens: list[int]) -> None:
    """The first steps of a process are slow; neither side should pay for them."""
    from outdraft.engine.sequence import SamplingParams

    engine.generate([tokens], SamplingParams(max_tokens=8, ignore_eos=True))
    engine.forget()


def _compare(
    engine: Engine,
    tokens: list[int],
    params: SamplingParams,
    shown: Generation,
    num_runs: int,
) -> dict[str, Any]:
    """Decoding speed with speculation against without, the two taking turns."""
    from dataclasses import replace

    # A fixed seed makes both sides write the same text.
    params = replace(params, seed=shown.seed)
    on: list[float] = []
    off: list[float] = []
    same = True
    for _ in range(num_runs):
        for speeds, k in ((on, None), (off, 0)):
            engine.forget()  # what an earlier run wrote must not help a later one
            [generation] = engine.generate([tokens], params, k=k)
            if generation.tokens_per_s is None:
                raise OptionError("the text has a single token: there is nothing to compare")
            speeds.append(generation.tokens_per_s)
            same = same and generation.tokens == shown.tokens
    ratios = [with_ / without for with_, without in zip(on, off, strict=True)]
    return {
        "runs": num_runs,
        "speedup": statistics.median(ratios),
        "lowest": min(ratios),
        "highest": max(ratios),
        "same_text": same,
    }


def _as_json(
    generation: Generation, speculation: Speculation, comparison: dict[str, Any] | None
) -> dict[str, Any]:
    acceptance = generation.acceptance
    result: dict[str, Any] = {
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
            "ttft_s": generation.ttft_s,
            "decode_s": generation.decode_s,
            "tokens_per_s": generation.tokens_per_s,
        },
    }
    if comparison is not None:
        result["compare"] = comparison
    return result
