"""Options of our own engine and of sampling."""

from dataclasses import replace

from outdraft import shared_options as shared
from outdraft.errors import OptionError
from outdraft.options import Option
from outdraft.speculation import AUTO, OFF, QUANTIZATIONS, RULES

ENGINE_OPTIONS = (
    shared.TARGET,
    replace(shared.DTYPE, help="auto, float32 or bfloat16", default="auto"),
    replace(shared.QUANTIZATION, help=f"of the target's weights: {', '.join(QUANTIZATIONS)}",
            default="none", choices=QUANTIZATIONS),
    shared.DEVICE,
    shared.THREADS,
    shared.MAX_MODEL_LEN,
    replace(shared.KV_CACHE_BYTES, type=int, minimum=1),
)  # fmt: skip

BATCH_OPTIONS = (
    replace(shared.MAX_NUM_SEQS, default=16),
    replace(shared.MAX_NUM_BATCHED_TOKENS, default=512),
    Option("--no-enable-prefix-caching", "compute every prompt anew, also where its beginning is "
           "in the cache", bool),
)  # fmt: skip

SPECULATION_OPTIONS = (
    shared.METHOD,
    replace(shared.DRAFT, help=f"{shared.DRAFT.help} (default: the one that ships for the target)"),
    replace(shared.K, help=f"{shared.K.help} (default: {OFF.k}; of auto {AUTO.k})", default=None,
            type=int),
    replace(shared.RULE, choices=RULES),
    replace(shared.DRAFT_QUANTIZATION, choices=QUANTIZATIONS),
    Option("--prompt-lookup-min", "n-gram: shortest match that counts",
           default=OFF.prompt_lookup_min),
    Option("--prompt-lookup-max", "n-gram: longest match looked for",
           default=OFF.prompt_lookup_max),
)  # fmt: skip


def _token_bias(text: str) -> tuple[int, float]:
    token, separator, bias = text.partition("=")
    try:
        if not separator:
            raise ValueError
        return int(token), float(bias)
    except ValueError:
        raise OptionError(f"--logit-bias takes TOKEN_ID=BIAS, got {text!r}") from None


SAMPLING_OPTIONS = (
    shared.TEMPERATURE,
    shared.SEED,
    replace(shared.MAX_TOKENS, default=256),
    Option("--min-tokens", "tokens of an answer at least", default=0),
    Option("--top-k", "sample from the N likeliest tokens; 0 from all", default=0),
    Option("--top-p", "sample from the likeliest tokens that together have probability X",
           default=1.0),
    Option("--min-p", "sample from tokens at least X times as likely as the likeliest",
           default=0.0),
    Option("--repetition-penalty", "on tokens of prompt and output", default=1.0),
    Option("--presence-penalty", "on tokens of the output", default=0.0),
    Option("--frequency-penalty", "on tokens of the output, for each time they occur", default=0.0),
    Option("--logit-bias", "add BIAS to a token's logit; may be repeated", type=_token_bias,
           metavar="TOKEN_ID=BIAS", repeats=True),
    Option("--stop", "end the text before this string; may be repeated", metavar="TEXT",
           repeats=True),
    Option("--ignore-eos", "continue after the end-of-text token", bool),
)  # fmt: skip
