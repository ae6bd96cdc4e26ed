"""The nearest thing to a speculation that an engine can run, each departure a note. Pure.

For a speculation that was found on one engine and is wanted on another. A user who asks for
something impossible is told so instead: `engine_config` changes nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from outdraft.backends.backend import Capabilities
from outdraft.emit.why import NAMES
from outdraft.speculation import OFF, WITH_DRAFT, Speculation

_FILE_TYPES = {"int8": "a Q8_0 file", "int4": "a Q4_0 or Q4_K file"}


def nearest(
    engine: str, speculation: Speculation, can: Capabilities, *, k: int
) -> tuple[Speculation, tuple[str, ...]]:
    """`k`: the draft length that stands in for a schedule, 0 for off.

    A method that the engine lacks stays as it is: no other one is near.
    """
    if speculation.is_off:
        return OFF, ()
    if speculation.method not in can.methods:
        return speculation, ()
    notes: list[str] = []
    changes: dict[str, Any] = {}
    if speculation.schedule and not _has_schedule(engine, speculation, can):
        notes.append(_about_schedule(engine, speculation, k, can.has_schedule))
        if k == 0:
            return OFF, tuple(notes)
        changes |= {"schedule": (), "k": k}
    if speculation.method in WITH_DRAFT:
        changes |= _quantization(engine, speculation, can, notes)
        changes |= _devices(engine, speculation, can, notes)
    else:  # what is said of a draft means nothing
        changes |= {"quantization": "none", "draft_tensor_parallel_size": None}
    changes |= _rule(engine, speculation, can, notes)
    return replace(speculation, **changes), tuple(notes)


def _has_schedule(engine: str, speculation: Speculation, can: Capabilities) -> bool:
    return can.has_schedule and (engine != "sglang" or speculation.method == "eagle")


def _about_schedule(engine: str, speculation: Speculation, k: int, can_have: bool) -> str:
    found = ", ".join(
        f"{start} to {end} requests: {f'k = {min(each, speculation.k)}' if each else 'off'}"
        for start, end, each in speculation.schedule
    )
    lacks = f"{NAMES[engine]} has none" + (f" for {speculation.method}" * can_have)
    chosen = f"k = {k}" if k else "off"
    return (
        f"a draft length by load is left out, {lacks}: {chosen} is right for the load that was "
        f"decided about (by load: {found})"
    )


def _quantization(
    engine: str, speculation: Speculation, can: Capabilities, notes: list[str]
) -> dict[str, str]:
    asked = speculation.quantization
    if asked in can.draft_quantizations:
        return {}
    if engine == "llamacpp":
        notes.append(
            f"{asked} is not a flag of llama.cpp, which takes a draft as its file is: that is "
            f"{_FILE_TYPES[asked]}"
        )
        return {"quantization": "none"}
    if asked == "int4" and "int8" in can.draft_quantizations:
        notes.append(f"{NAMES[engine]} makes no int4 draft while it loads; 8 bits are nearest")
        return {"quantization": "int8"}
    notes.append(
        f"the draft's {asked} is left out, {NAMES[engine]} makes none while it loads: the draft "
        "takes more memory and time than was measured"
    )
    return {"quantization": "none"}


def _devices(
    engine: str, speculation: Speculation, can: Capabilities, notes: list[str]
) -> dict[str, None]:
    size = speculation.draft_tensor_parallel_size
    if size is None or can.has_draft_tensor_parallel:
        return {}
    notes.append(f"draft_tensor_parallel_size {size} is left out, {NAMES[engine]} has none")
    return {"draft_tensor_parallel_size": None}


def _rule(
    engine: str, speculation: Speculation, can: Capabilities, notes: list[str]
) -> dict[str, str]:
    rules = can.rules
    if engine == "sglang" and speculation.method == "draft_model":
        rules = rules - {"rejection"}  # it has that for heads only
    if speculation.rule in rules:
        return {}
    rule = "rejection" if "rejection" in rules else "coupled"
    kept = "and changes no text" if speculation.is_lossy else "and is as lossless"
    notes.append(
        f"{rule} stands in for {speculation.rule}, which {NAMES[engine]} lacks: it accepts less, "
        f"{kept}"
    )
    return {"rule": rule}
