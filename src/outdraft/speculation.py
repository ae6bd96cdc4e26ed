"""Speculation: the engine-neutral settings, the pivot of the project. `off` is one too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from outdraft.errors import OptionError, unknown_choice

# That our engine runs. auto: lookups, and a draft where there is one, as it pays in each round
OWN_METHODS = ("off", "ngram", "suffix", "draft_model", "eagle", "auto")
ELSEWHERE = {"mtp": "vLLM or SGLang", "medusa": "vLLM"}  # other methods, and who has them
METHODS = (*OWN_METHODS, *ELSEWHERE)
LOOKED_UP = ("ngram", "suffix")  # methods that propose without weights
# Methods that need a draft: a model, or heads. The layers of mtp are in the target's checkpoint;
# for targets whose layers are published apart it may have a draft.
WITH_DRAFT = ("draft_model", "eagle", "medusa")
RULES = ("coupled", "rejection", "typical")
QUANTIZATIONS = ("none", "int8", "int4")
MAX_K = 64
_DEFAULT_K, _DEFAULT_AUTO_K = 5, 16

Schedule = tuple[tuple[int, int, int], ...]  # (from, to, k) by running sequences; 0 is off


@dataclass(frozen=True, slots=True)
class Speculation:
    method: str = "off"
    # Draft length: tokens proposed in one round, at most. None: 5, of auto 16
    k: int = None  # type: ignore[assignment]
    draft: str | None = None  # catalog name, hub id, folder or .gguf file
    quantization: str = "none"  # of the draft's weights
    rule: str = "coupled"  # verification rule
    prompt_lookup_min: int = 2  # n-gram: shortest match that counts
    prompt_lookup_max: int = 5  # n-gram: longest match looked for
    schedule: Schedule = ()
    posterior_threshold: float = 0.09  # typical rule
    posterior_alpha: float = 0.3  # typical rule
    draft_tensor_parallel_size: int | None = None  # foreign engines: devices of the draft

    def __post_init__(self) -> None:
        if self.k is None:
            k = _DEFAULT_AUTO_K if self.method == "auto" else _DEFAULT_K
            object.__setattr__(self, "k", k)
        if self.method not in METHODS:
            raise unknown_choice("method", self.method, METHODS)
        if self.rule not in RULES:
            raise unknown_choice("verification rule", self.rule, RULES)
        if self.quantization not in QUANTIZATIONS:
            raise unknown_choice("draft quantization", self.quantization, QUANTIZATIONS)
        for name in ("k", "prompt_lookup_min", "prompt_lookup_max"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool):
                raise OptionError(f"{name} must be a whole number, got {value!r}")
        if self.draft is not None and not isinstance(self.draft, str):
            raise OptionError(f"a draft is named by a text, got {self.draft!r}")
        if not 1 <= self.k <= MAX_K:
            raise OptionError(f"k must be between 1 and {MAX_K}, got {self.k}; method off is k = 0")
        if not 1 <= self.prompt_lookup_min <= self.prompt_lookup_max:
            raise OptionError(
                "prompt_lookup_min must be at least 1 and at most prompt_lookup_max, got "
                f"{self.prompt_lookup_min} and {self.prompt_lookup_max}"
            )
        if self.is_auto and self.rule != "coupled":
            raise OptionError(
                f"method auto has the coupled rule alone, got {self.rule}; choose a method for it"
            )
        if self.method in WITH_DRAFT and not self.draft:
            raise OptionError(f"method {self.method} needs a draft; name one with --draft")
        size = self.draft_tensor_parallel_size
        if size is not None and (not isinstance(size, int) or isinstance(size, bool) or size < 1):
            raise OptionError(f"draft_tensor_parallel_size must be at least 1, got {size!r}")
        for name in ("posterior_threshold", "posterior_alpha"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0 < value <= 1:
                raise OptionError(f"{name} must be greater than 0 and at most 1, got {value!r}")
        check_schedule(self.schedule)

    @property
    def is_off(self) -> bool:
        return self.method == "off"

    @property
    def is_auto(self) -> bool:
        return self.method == "auto"

    @property
    def is_lossy(self) -> bool:
        return not self.is_off and self.rule == "typical"

    def describe(self) -> str:
        """In words, for people."""
        if self.is_off:
            return "no speculation"
        draft = f" with {self.draft}" if self.draft else ""
        schedule = ", k by load" if self.schedule else ""
        lossy = ", lossy" if self.is_lossy else ""
        if self.is_auto:
            return f"{self.method}{draft}, k by what pays, up to {self.k}{schedule}"
        return f"{self.method}{draft}, k = {self.k}{schedule}, {self.rule}{lossy}"

    def k_at(self, num_running: int) -> int:
        """The draft length with so many sequences running; gaps carry the k before them."""
        if self.is_off:
            return 0
        scheduled = scheduled_k(self.schedule, num_running)
        return self.k if scheduled is None else min(self.k, scheduled)

    @classmethod
    def from_mapping(cls, settings: Mapping[str, Any]) -> Speculation:
        """From our own keys or vLLM's `--speculative-config` JSON; unknown keys are refused."""
        known = {field.name for field in fields(cls)}
        values: dict[str, Any] = {}
        for key, value in settings.items():
            name = VLLM_KEYS.get(key, key)
            if name not in known:
                raise unknown_choice("speculation key", key, sorted({*known, *VLLM_KEYS}))
            if name in values:
                raise OptionError(f"{key} and another name of {name} are both given; keep one")
            if value is not None:
                values[name] = value
        if isinstance(values.get("method"), str):
            values["method"] = our_method(values["method"])
        if "schedule" in values:
            values["schedule"] = _schedule(values["schedule"])
        if "method" not in values and values.get("draft"):
            values["method"] = "draft_model"
        elif "method" not in values and values:
            raise OptionError(f"no method is given; choose one of: {', '.join(METHODS)}")
        # One end of the match lengths given: the other one's default gives way.
        low, high = values.get("prompt_lookup_min"), values.get("prompt_lookup_max")
        if low is None and isinstance(high, int):
            values["prompt_lookup_min"] = min(OFF.prompt_lookup_min, high)
        elif high is None and isinstance(low, int):
            values["prompt_lookup_max"] = max(OFF.prompt_lookup_max, low)
        return cls(**values)


VLLM_KEYS = {
    "model": "draft",
    "num_speculative_tokens": "k",
    "num_speculative_tokens_per_batch_size": "schedule",
}


def our_method(method: str) -> str:
    """Of a method as vLLM may call it: eagle3, deepseek_mtp, qwen3_next_mtp, …"""
    if method == "eagle3":
        return "eagle"
    return "mtp" if method.endswith("_mtp") else method


def check_own_method(method: str) -> None:
    """OptionError in one line for a method that only other engines have."""
    if method in ELSEWHERE:
        raise OptionError(
            f"outdraft's engine has no method {method!r}; valid: {', '.join(OWN_METHODS)}; "
            f"use {ELSEWHERE[method]}, e.g. outdraft tune --engine vllm"
        )


def scheduled_k(schedule: Schedule, num_running: int) -> int | None:
    """The k of the last entry that has begun; None before the first, and without any."""
    begun = [k for start, _, k in schedule if start <= num_running]
    return begun[-1] if begun else None


def _schedule(entries: object) -> Schedule:
    if not isinstance(entries, list | tuple) or not all(
        isinstance(entry, list | tuple) for entry in entries
    ):
        raise OptionError(f"a schedule is a list of [from, to, k], got {entries!r}")
    return tuple(tuple(entry) for entry in entries)


def check_schedule(schedule: Schedule) -> None:
    before = 0
    for entry in schedule:
        if len(entry) != 3 or not all(isinstance(number, int) for number in entry):
            raise OptionError(f"a schedule entry is [from, to, k], got {list(entry)!r}")
        start, end, k = entry
        if start <= before or end < start or k < 0:
            raise OptionError(
                f"schedule entry {list(entry)!r}: from must come after {before}, to must not be "
                "before from, k must not be negative"
            )
        if before == 0 and start != 1:
            raise OptionError(f"a schedule starts at 1 running sequence, got {start}")
        before = end


OFF = Speculation()
AUTO = Speculation("auto")
