"""What to change in a plan: every line was computed with the change, and holds."""

from collections.abc import Iterator
from dataclasses import replace
from math import ceil, log2

from outdraft.errors import OptionError
from outdraft.modelspec import HeadSpec, MtpSpec
from outdraft.plan.budget import Deployment, Mix, Room
from outdraft.plan.sizes import QUANTIZATIONS

_SHORTEST = 1024  # tokens: a shorter text is nothing to serve
_SMALL_CHUNK = 2048  # tokens of a step
_WORTH = 0.05  # of the KV tokens: less is not worth a flag
_TIMES = (2, 4, 8)  # as many devices


def helpful_changes(deployment: Deployment, mix: Mix) -> Iterator[str]:
    """Changes of one setting that make it serve; where it does, those that let it serve more."""
    room = mix.room
    if room is None:
        return
    if room.serves:
        yield from _fewer_at_once(deployment, mix, room)
        return
    length = room.longest_text
    if length >= _SHORTEST:
        yield f"--max-model-len {length} is the longest that fits"
    yield from _smaller_reserve(deployment, mix)
    if deployment.settings.kv_dtype != "fp8" and _serves(deployment, mix, kv_dtype="fp8"):
        yield "--kv-dtype fp8 halves the KV cache, and fits"
    yield from _other_weights(deployment, mix)
    if mix.with_draft is not None and mix.without is not None and mix.without.serves:
        yield f"without {'speculation' if deployment.draft is None else 'the draft'} it fits"
    yield from _more_devices(deployment, mix)


def _fewer_at_once(deployment: Deployment, mix: Mix, room: Room) -> Iterator[str]:
    """Rows for more texts than fit are memory that no text uses."""
    most = deployment.settings.max_num_seqs
    fitting = max(1, ceil(room.full_sequences))
    fewer = 1 << ceil(log2(fitting))
    if fewer >= most:
        return
    found = _changed(deployment, mix, max_num_seqs=fewer)
    gain = found.kv_tokens / room.kv_tokens - 1
    if gain >= _WORTH:
        yield (
            f"--max-num-seqs {fewer}, as few full-length texts fit at once: "
            f"{found.kv_tokens:,} KV tokens ({gain:+.0%})"
        )


def _smaller_reserve(deployment: Deployment, mix: Mix) -> Iterator[str]:
    fewer = deployment.settings.max_num_seqs // 2
    while fewer and not _serves(deployment, mix, max_num_seqs=fewer):
        fewer //= 2
    if fewer:
        yield f"--max-num-seqs {fewer} keeps fewer rows of logits, and fits"
    if deployment.settings.max_num_batched_tokens > _SMALL_CHUNK and _serves(
        deployment, mix, max_num_batched_tokens=_SMALL_CHUNK
    ):
        yield f"--max-num-batched-tokens {_SMALL_CHUNK} has smaller activations, and fits"


def _other_weights(deployment: Deployment, mix: Mix) -> Iterator[str]:
    ours, theirs = mix.target_quantization, mix.draft_quantization
    is_part = deployment.draft is not None and isinstance(deployment.draft.spec, MtpSpec)
    for each in QUANTIZATIONS:
        if deployment.mix(each, each if is_part else theirs).serves:
            yield f"--target-quantization {each} fits"
            break
    for each in QUANTIZATIONS if theirs is not None and not is_part else ():
        if deployment.mix(ours, each).serves:
            yield f"--draft-quantization {each} fits"
            break


def _more_devices(deployment: Deployment, mix: Mix) -> Iterator[str]:
    devices, draft = deployment.devices, deployment.draft
    if devices is None:
        return
    for times in _TIMES:
        more = replace(deployment, devices=replace(devices, count=times * devices.count))
        if _fits(more, mix):
            yield f"{more.ranks} such devices fit it"
            return
        alone = replace(more, settings=replace(more.settings, draft_ranks=1))
        if draft is None or _divides(more) or not _fits(alone, mix):
            continue
        if isinstance(draft.spec, HeadSpec):
            yield f"{more.ranks} such devices with --draft-tensor-parallel-size 1 fit it"
        else:
            yield (
                f"{more.ranks} such devices have room, but the attention heads of {draft.name} do "
                "not divide over them, and vLLM and SGLang split a draft model as its target: "
                "choose another draft"
            )
        return


def _fits(deployment: Deployment, mix: Mix) -> bool:
    quantizations = mix.target_quantization, mix.draft_quantization
    return _divides(deployment) and bool(deployment.mix(*quantizations).serves)


def _divides(deployment: Deployment) -> bool:
    """Whether attention heads divide over the devices."""
    try:
        deployment.check_split()
    except OptionError:
        return False
    return True


def _serves(deployment: Deployment, mix: Mix, **changes: object) -> bool:
    return _changed(deployment, mix, **changes).serves


def _changed(deployment: Deployment, mix: Mix, **changes: object) -> Room:
    settings = replace(deployment.settings, **changes)  # type: ignore[arg-type]
    changed = replace(deployment, settings=settings)
    room = changed.mix(mix.target_quantization, mix.draft_quantization).room
    assert room is not None
    return room
