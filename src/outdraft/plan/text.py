"""A plan as plain text: lines, tables, and the widths of bars. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from outdraft.plan.budget import BLOCK_TOKENS, Room
from outdraft.plan.devices import GPUS
from outdraft.plan.findings import OK, Check
from outdraft.plan.models import Model
from outdraft.plan.plan import Plan
from outdraft.plan.sizes import active_parameters, num_parameters
from outdraft.plan.suggest import Suggestion
from outdraft.text_table import align_columns

_PARTS = {
    "target_weights": "target weights",
    "draft_weights": "draft weights",
    "draft_logits": "draft logits",
    "activations": "activations (estimate)",
    "cuda_graphs": "CUDA graphs (estimate)",
    "runtime": "runtime (estimate)",
}


@dataclass(frozen=True, slots=True)
class Bar:
    title: str
    widths: Mapping[str, int]  # characters of target, draft, reserve, kv and unused
    label: str


def size_text(num_bytes: float) -> str:
    """In decimal units, as people say them."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if abs(num_bytes) >= 0.9995 * scale:
            value = num_bytes / scale
            return f"{value:.1f} {unit}" if abs(value) >= 10 else f"{value:.2f} {unit}"
    return f"{num_bytes:.0f} B"


def summary_lines(plan: Plan) -> Iterator[str]:
    settings, mix = plan.settings, plan.headline
    yield _model_line("target", plan.target, mix.target_quantization, mix.target_bytes)
    if plan.draft is not None and mix.draft_quantization is not None:
        line = _model_line("draft", plan.draft, mix.draft_quantization, mix.draft_bytes)
        yield f"{line}, k = {settings.k}"
    if plan.devices is not None:
        devices = plan.devices
        total = f", {size_text(devices.total_bytes)} in all" if devices.count > 1 else ""
        each = size_text(devices.bytes_each)
        if devices.name in GPUS:  # as the card's own tool says it, to be compared
            each = f"{GPUS[devices.name]:,} MiB ({each})"
        yield (
            f"memory   {devices.count} × {devices.name} of {each}{total}, "
            f"{settings.utilization:.0%} of it used"
        )
    yield (
        f"serving  {settings.max_num_seqs} sequences at most, of {settings.max_model_len:,} tokens "
        f"at most; KV in {settings.kv_dtype}"
    )


def _model_line(role: str, model: Model, quantization: str, num_bytes: int) -> str:
    total, active = num_parameters(model.spec), active_parameters(model.spec)
    count = f"{_billions(total)} parameters"
    if active != total:
        count += f" ({_billions(active)} active)"
    held = "as the files are" if quantization == "files" else quantization
    return f"{role:8} {model.name} ({model.source}): {count}, {held}, {size_text(num_bytes)}"


def _billions(count: int) -> str:
    return f"{count / 1e9:.3g}B" if count >= 1e9 else f"{count / 1e6:.3g}M"


def room_table(plan: Plan) -> str:
    """By part on one device, and what the KV cache can hold."""
    rooms = [room for room in (plan.headline.without, plan.headline.with_draft) if room is not None]
    titles = ("without", _title(plan), "change") if len(rooms) == 2 else ("target alone",)
    each = "per device" if plan.devices is not None and plan.devices.count > 1 else "memory"
    rows: list[Sequence[str]] = [(each, *titles)]
    is_whole = plan.settings.kv_cache_bytes is None
    for part, title in _PARTS.items():
        if is_whole and any(part in room.parts for room in rooms):
            rows.append(_row(title, [room.parts.get(part, 0) for room in rooms]))
    rows.append(_row("KV cache", [room.kv_cache_bytes for room in rooms]))
    if is_whole:
        rows.append(_row("left unused", [room.unused_bytes for room in rooms]))
    rows.append(_row("KV bytes per token", [room.kv_bytes_per_token for room in rooms]))
    tokens = [f"{room.kv_tokens:,}" for room in rooms]
    sequences = [f"{room.full_sequences:.2f}" for room in rooms]
    lost = plan.headline.lost_share()
    change = [] if len(rooms) < 2 else ["–" if lost is None else f"{-lost:+.0%}"]
    rows.append(("KV tokens", *tokens, *change))
    rows.append((f"sequences of {plan.settings.max_model_len:,}", *sequences, *change))
    return align_columns(rows)


def _title(plan: Plan) -> str:
    """Of what is beside the target alone."""
    return f"with {plan.method}" if plan.draft is None else "with draft"


def _row(title: str, values: list[int]) -> list[str]:
    row = [title, *(size_text(value) if value else "–" for value in values)]
    if len(values) == 2:
        change = values[1] - values[0]
        row.append(f"{'+' if change > 0 else '-'}{size_text(abs(change))}" if change else "")
    return row


def bars(plan: Plan, width: int) -> Iterator[Bar]:
    """The fullest device as a bar, without speculation and with it."""
    if plan.devices is None or plan.settings.kv_cache_bytes is not None:
        return
    rooms = {"without": plan.headline.without, _title(plan): plan.headline.with_draft}
    for title, room in rooms.items():
        if room is not None:
            label = f"{room.kv_tokens:,} KV tokens" if room.kv_tokens else "does not fit"
            yield Bar(title, _widths(room, plan.devices.bytes_each, width), label)


def _widths(room: Room, whole: int, width: int) -> dict[str, int]:
    sizes = {
        "target": room.parts["target_weights"],
        "draft": room.parts.get("draft_weights", 0),
        "reserve": room.reserve_bytes,
        "kv": max(room.kv_cache_bytes, 0),
        "unused": room.unused_bytes,
    }
    scale = max(whole, sum(sizes.values()))
    # The ends are rounded, not the widths, so that errors do not add up.
    ends = [round(width * done / scale) for done in accumulate(sizes.values())]
    return {kind: end - start for kind, start, end in zip(sizes, [0, *ends], ends, strict=False)}


def serving_line(plan: Plan) -> str | None:
    room = plan.room
    if room is None:
        return None
    if room.kv_cache_bytes <= 0:
        where = " on each device" if plan.devices is not None and plan.devices.count > 1 else ""
        return f"does not serve: {size_text(-room.kv_cache_bytes)} too little{where}"
    whole = plan.target.spec.max_context
    limit = (
        "as long as the target reads"
        if room.longest_text > whole - BLOCK_TOKENS
        else (f"the target reads {whole:,}")
    )
    longest = f"the longest text that fits has {room.longest_text:,} tokens ({limit})"
    each = f"of {plan.settings.max_model_len:,} tokens"
    if room.serves:
        return f"serves: {room.full_sequences:.1f} texts {each} at once; {longest}"
    return f"does not serve: not one text {each} fits; {longest}"


def advice_lines(plan: Plan) -> Iterator[str]:
    """What to change, and how to start an engine that has what was counted."""
    yield from (f"  {each}" for each in plan.advice)
    settings, devices = plan.settings, plan.devices
    flags = f"--max-model-len {settings.max_model_len} --max-num-seqs {settings.max_num_seqs}"
    if devices is not None and devices.count > 1:
        flags += f" --tensor-parallel-size {devices.count}"
    of_vllm = f"--max-num-batched-tokens {settings.max_num_batched_tokens}"
    if settings.kv_cache_bytes is not None:
        of_vllm += f" --kv-cache-memory-bytes {settings.kv_cache_bytes}"
    else:
        of_vllm += f" --gpu-memory-utilization {settings.utilization:g}"
    if settings.kv_dtype == "fp8":
        of_vllm += " --kv-cache-dtype fp8"
    if settings.enforce_eager:
        of_vllm += " --enforce-eager"
    yield f"  counted for vLLM with: {flags} {of_vllm}"
    yield f'  the same for emit: {flags} --engine-flags "{of_vllm}"'


def finding_lines(findings: Sequence[Check]) -> Iterator[str]:
    for each in findings:
        value = each.value
        if isinstance(value, float | int):
            value = f"1:{value:.1f}" if each.name == "size_ratio" else f"{value:.1%}"
        is_plain = each.state == OK and isinstance(each.value, str)
        limit = "" if is_plain else f" (wanted: {each.threshold})"
        yield f"  {each.state:7} {each.name.replace('_', ' ')}: {value}{limit}"
        if each.advice:
            yield f"          {each.advice}"


def mix_table(plan: Plan) -> str:
    """Weights on all devices; what is left before any reserve; KV tokens without and with."""
    mixes, has_draft = plan.mixes, plan.draft is not None
    has_room = any(mix.left_bytes is not None for mix in mixes)
    title = ["target", *(["draft"] if has_draft else []), "weights"]
    if has_room:
        is_on = plan.method != "off"
        title += ["left", "KV tokens", *([_title(plan), "change"] if is_on else []), "serves"]
    rows: list[Sequence[str]] = [title]
    for mix in mixes:
        row = [mix.target_quantization]
        if has_draft:
            row.append(str(mix.draft_quantization))
        row.append(size_text(mix.target_bytes + mix.draft_bytes))
        if has_room and mix.without is not None and mix.left_bytes is not None:
            row += [size_text(mix.left_bytes), f"{mix.without.kv_tokens:,}"]
            if mix.with_draft is not None:
                lost = mix.lost_share()
                row += [f"{mix.with_draft.kv_tokens:,}", "–" if lost is None else f"{-lost:+.0%}"]
            row.append("yes" if mix.serves else "no")
        rows.append(row)
    return align_columns(rows)


def suggestion_lines(target: str, suggestions: Sequence[Suggestion]) -> Iterator[str]:
    if not suggestions:
        yield f"drafts for {target}: none in the table"
        yield "  n-gram and suffix proposers need no draft; EAGLE heads are given as a folder"
        return
    yield f"drafts for {target}, the likeliest to pay first:"
    rows = [
        (
            f"  {each.name}",
            each.quantization,
            size_text(each.num_bytes),
            "" if each.kv_tokens is None else f"{each.kv_tokens:,} KV tokens",
        )
        for each in suggestions
    ]
    for line, each in zip(align_columns(rows).splitlines(), suggestions, strict=True):
        yield f"{line}  {each.why}"
