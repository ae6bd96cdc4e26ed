"""What a distillation makes and how.

No torch here: options are checked before it is loaded.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from outdraft.distill.options import STAGES
from outdraft.durations import parse_duration
from outdraft.errors import OptionError
from outdraft.modelspec.head import NUM_TAPS
from outdraft.options import make_settings

# Stage, share done (0 to 1), a few words; those of the stages `measure` and `note` stay in sight.
OnProgress = Callable[[str, float, str], None]


@dataclass(frozen=True, slots=True)
class ModelSize:
    hidden: int = 256
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    intermediate: int = 1024

    def __post_init__(self) -> None:
        if self.hidden % (2 * self.heads) or self.heads % self.kv_heads:
            raise OptionError(
                f"a hidden size of {self.hidden} does not split into {self.heads} heads of an even "
                f"size, or those over {self.kv_heads} kv heads; change --hidden, --heads or "
                "--kv-heads"
            )


@dataclass(frozen=True, slots=True)
class HeadSize:
    """None: as in the earlier head that training starts from, else the default."""

    intermediate: int | None = None  # default: the target's hidden size
    heads: int | None = None  # default: the target's
    kv_heads: int | None = None  # default: the target's
    draft_vocab: int | None = None  # default: 4096
    taps: tuple[int, ...] | None = None  # default: an early, a middle and the last layer

    def __post_init__(self) -> None:
        if self.taps is not None and len(set(self.taps)) != NUM_TAPS:
            raise OptionError(f"a head taps {NUM_TAPS} different layers, got {list(self.taps)}")


@dataclass(frozen=True, slots=True)
class DataSettings:
    seed: int = 0
    room: int = 768  # tokens of a text, prompt included
    answer_tokens: int = 256  # of one answer
    top_logits: int = 32  # the target's likeliest tokens, kept for each position
    shard_texts: int | None = None  # None: by the device
    max_answer_tokens: int | None = None  # stop at this many in all
    budget_s: float = 480.0  # also for the answers to held-out prompts
    held_out_prompts: int | None = None  # of each category; None: all that are held out
    held_out_tokens: int = 128  # of an answer to a held-out prompt


@dataclass(frozen=True, slots=True)
class TrainSettings:
    seed: int = 0
    budget_s: float = 480.0
    steps: int | None = None  # None: until the budget is spent
    learning_rate: float = 1e-3
    warmup: float = 0.03  # share of the budget
    batch_tokens: int = 32_768  # of one step, prompts and padding included
    hard: float = 0.2  # weight of the target's likeliest token relative to its distribution
    unroll: int = 5  # steps over its own predictions that a head is trained on
    decay: float = 0.8  # weight of such a step relative to the one before
    k: int = 5  # draft length at which acceptance is measured
    num_measures: int = 6  # during training
    checkpoint_s: float = 60.0

    def __post_init__(self) -> None:
        if not 0 < self.learning_rate < 1:
            raise OptionError(f"a learning rate lies between 0 and 1, got {self.learning_rate:g}")


@dataclass(frozen=True, slots=True)
class DistillSettings:
    target: str
    kind: str  # one of KINDS
    out: Path
    work: Path
    data: Path
    size: ModelSize | HeadSize
    budget_s: float = 1800.0  # for all stages
    stages: tuple[str, ...] = STAGES
    prompts: Path | None = None
    start: Path | None = None  # an earlier draft whose weights training starts from
    storage: str = "bfloat16"  # one of STORAGES, of a head's matrices
    device: str = "cpu"
    dtype: str = "auto"
    threads: int | None = None
    data_settings: DataSettings = field(default_factory=DataSettings)
    train_settings: TrainSettings = field(default_factory=TrainSettings)
    evaluate_prompts: int | None = None  # of each category; None: all that are held out
    evaluate_tokens: int = 128


def distill_settings(args: argparse.Namespace) -> DistillSettings:
    if args.out is None and not (args.stage == "data" and args.data):
        raise OptionError("no place for the draft; give --out DIR")
    out = args.out or args.data
    work = args.work or out / "work"
    is_model, on_gpu = args.kind == "model", args.device.startswith("cuda")
    defaults = {
        "learning_rate": 2e-3 if is_model else 1e-3,
        "batch_tokens": (65_536 if is_model else 32_768) if on_gpu else 2048,
        "held_out_prompts": None if on_gpu else 2,
    }
    for key, value in defaults.items():
        if getattr(args, key) is None:
            setattr(args, key, value)
    budget_s = parse_duration(args.budget, option="--budget")
    held_out_tokens = min(args.evaluate_tokens, args.answer_tokens)
    return make_settings(
        DistillSettings,
        args,
        out=out,
        work=work,
        data=args.data or work / "data",
        size=_size(args),
        stages=STAGES if args.stage == "all" else (args.stage,),
        start=getattr(args, "from"),
        budget_s=budget_s,
        data_settings=make_settings(
            DataSettings, args, budget_s=budget_s, held_out_tokens=held_out_tokens
        ),
        train_settings=make_settings(TrainSettings, args, budget_s=budget_s),
    )


def _size(args: argparse.Namespace) -> ModelSize | HeadSize:
    if args.kind == "model":
        return make_settings(ModelSize, args)
    for key in ("hidden", "layers"):
        if getattr(args, key) is not None:
            raise OptionError(f"a head has its target's {key}; --{key} is for --kind model")
    return make_settings(HeadSize, args)
