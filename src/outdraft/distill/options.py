"""Options of `outdraft distill` and `outdraft export`."""

from dataclasses import replace
from pathlib import Path

from outdraft import shared_options as shared
from outdraft.errors import OptionError
from outdraft.options import Option

METHODS = {"model": "draft_model", "head": "eagle"}  # of a speculation with a draft of the kind
KINDS = tuple(METHODS)
STAGES = ("data", "train", "evaluate")
# How a head's matrices are stored. float8 halves the file and costs little: a logit sums hundreds
# of weights, so their 3 fraction bits hardly show. blocks (`modelspec/packed.py`) are smaller.
STORAGES = ("bfloat16", "float8", "blocks")
_STAGES = ("all", *STAGES)
STORAGE = Option("--storage", f"how the matrices of a head are stored: {', '.join(STORAGES)}",
                 default="bfloat16", choices=STORAGES, metavar="TYPE")  # fmt: skip

DRAFT_OPTIONS = (
    shared.TARGET,
    replace(shared.OUT, help="folder for the draft", metavar="DIR", type=Path),
    Option("--kind", "model: a small Llama; head: one layer over the target's hidden states",
           default="model", choices=KINDS),
    Option("--stage", f"{', '.join(_STAGES)}", default="all", choices=_STAGES),
    replace(shared.PROMPTS, help="more prompts: JSONL, ShareGPT, OpenAI logs, …", metavar="FILE",
            type=Path),
    replace(shared.BUDGET, help="time for all of it, or for the stage: 90s, 8m, 1.5h",
            default="30m"),
    shared.DEVICE,
    replace(shared.DTYPE, help="of the target: auto, float32 or bfloat16", default="auto"),
    shared.THREADS,
    replace(shared.SEED, help="of data and training", default=0),
    Option("--from", "start from the weights of this earlier draft", Path, metavar="DIR"),
    Option("--work", "folder for the state of the training (default: OUT/work)", Path,
           metavar="DIR"),
    Option("--data", "folder for the target's texts (default: WORK/data)", Path, metavar="DIR"),
    shared.JSON,
)  # fmt: skip


def _parse_taps(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise OptionError(f"--taps takes three layers such as 2,15,29, got {text!r}") from None


SIZE_OPTIONS = (
    Option("--hidden", "model: hidden size (default: 256)", int, minimum=1),
    Option("--layers", "model: layers (default: 4)", int, minimum=1),
    Option("--heads", "attention heads (default: 4; head: the target's)", int, minimum=1),
    Option("--kv-heads", "heads of keys and values (default: 2; head: the target's)", int,
           minimum=1),
    Option("--intermediate", "width of the feed-forward part (default: 1024; head: the target's "
           "hidden size)", int, minimum=1),
    Option("--draft-vocab", "head: tokens that it can propose, the most frequent ones (default: "
           "4096)", int, minimum=1),
    replace(STORAGE, help=f"head: how its matrices are stored: {', '.join(STORAGES)}"),
    Option("--taps", "head: three of the target's layers, such as 2,15,29", type=_parse_taps,
           metavar="A,B,C"),
)  # fmt: skip

TRAINING_OPTIONS = (
    Option("--room", "tokens of a text, prompt included", default=768, minimum=1),
    Option("--answer-tokens", "tokens of an answer at most", default=256, minimum=1),
    Option("--max-answer-tokens", "data: stop at this many in all", int, minimum=1),
    Option("--top-logits", "of the target, kept for each token", default=32, minimum=1),
    Option("--shard-texts", "texts of one shard (default: by the device)", int, minimum=1),
    Option("--steps", "end training after this many, if the budget lasts", int, minimum=1),
    Option("--learning-rate", "at its peak (default: 0.002 model, 0.001 head)", float),
    Option("--batch-tokens", "tokens of a training step (default: by the device)", int, minimum=1),
    Option("--hard", "weight of the target's likeliest token relative to its distribution",
           default=0.2, minimum=0, maximum=1),
    Option("--decay", "head: weight of an unrolled step relative to the one before", default=0.8,
           minimum=0, maximum=1),
    Option("--unroll", "head: steps over its own predictions in training", default=5, minimum=1),
    replace(shared.K, help="draft length at which acceptance is measured", minimum=1),
    Option("--held-out-prompts", "of each category, measured while training (default: all, on a "
           "CPU 2)", int, minimum=1),
    Option("--evaluate-prompts", "of each category, at the end in the engine (default: all)", int),
    Option("--evaluate-tokens", "tokens of each answer that is measured", default=128, minimum=1),
)  # fmt: skip

EXPORT_OPTIONS = (
    Option("model", "a catalog name, a .gguf file or the folder of a head", metavar="MODEL"),
    replace(shared.OUT, help="folder to write, new or empty", metavar="DIR", is_required=True),
    STORAGE,
    shared.JSON,
)
