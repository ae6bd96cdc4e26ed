"""The nearest thing to a speculation that an engine can run, with a note for each difference.

For a speculation that was measured on one engine and is wanted on another. `engine_config` changes
nothing: a user who asks for something impossible gets an error instead.
"""

from dataclasses import replace
from typing import Any

from outdraft.backends.backend import Backend
from outdraft.speculation import OFF, WITH_DRAFT, Speculation


def nearest(
    backend: Backend, speculation: Speculation, *, k: int
) -> tuple[Speculation, tuple[str, ...]]:
    """`k`: the draft length that replaces a schedule, 0 for off.

    A method that the engine lacks stays as it is: no other one is near.
    """
    capabilities, method = backend.capabilities(), speculation.method
    if speculation.is_off:
        return OFF, ()
    if method not in capabilities.methods:
        return speculation, ()
    notes: list[str] = []
    changes: dict[str, Any] = {}
    if speculation.schedule and method not in capabilities.schedule_methods:
        notes.append(_schedule_note(backend, speculation, k))
        if k == 0:
            return OFF, tuple(notes)
        changes |= {"schedule": (), "k": k}
    if method in WITH_DRAFT:
        changes["quantization"] = _quantization(backend, speculation, notes)
        size = speculation.draft_tensor_parallel_size
        if size is not None and not capabilities.has_draft_tensor_parallel:
            notes.append(f"draft_tensor_parallel_size {size} is left out, {backend.title} has none")
            changes["draft_tensor_parallel_size"] = None
    elif not speculation.is_auto:  # settings of a draft mean nothing
        changes |= {"quantization": "none", "draft_tensor_parallel_size": None}
    rules = capabilities.rules_of(method)
    if speculation.rule not in rules:
        changes["rule"] = rule = "rejection" if "rejection" in rules else "coupled"
        kept = "and changes no text" if speculation.is_lossy else "and is as lossless"
        notes.append(
            f"{rule} stands in for {speculation.rule}, which {backend.title} lacks: it accepts "
            f"less, {kept}"
        )
    return replace(speculation, **changes), tuple(notes)


def _schedule_note(backend: Backend, speculation: Speculation, k: int) -> str:
    by_load = ", ".join(
        f"{start} to {end} requests: {f'k = {min(each, speculation.k)}' if each else 'off'}"
        for start, end, each in speculation.schedule
    )
    has_others = bool(backend.capabilities().schedule_methods)
    lacks = f"{backend.title} has none" + (f" for {speculation.method}" * has_others)
    chosen = f"k = {k}" if k else "off"
    return (
        f"a draft length by load is left out, {lacks}: {chosen} is right for the load that was "
        f"decided about (by load: {by_load})"
    )


def _quantization(backend: Backend, speculation: Speculation, notes: list[str]) -> str:
    wanted, capabilities = speculation.quantization, backend.capabilities()
    if wanted in capabilities.draft_quantizations:
        return wanted
    if wanted in capabilities.quantized_files:
        notes.append(
            f"{wanted} is not a flag of {backend.title}, which takes a draft as its file is: that "
            f"is {capabilities.quantized_files[wanted]}"
        )
        return "none"
    if wanted == "int4" and "int8" in capabilities.draft_quantizations:
        notes.append(f"{backend.title} makes no int4 draft while it loads; 8 bits are nearest")
        return "int8"
    notes.append(
        f"the draft's {wanted} is left out, {backend.title} makes none while it loads: the draft "
        "takes more memory and time than was measured"
    )
    return "none"
