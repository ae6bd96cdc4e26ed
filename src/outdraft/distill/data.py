"""The data stage: the target answers prompts, shard after shard, until time or tokens run out.

    DIR/data.json             for which target and how; a run with others does not go on here
    DIR/held-out.safetensors  the held-out prompts' answers at 0, 0.7 and 1.0: only for measuring
    DIR/shard-00000.safetensors …

Shard i depends on the seed, on i and on the shards before it, so a run that was killed makes the
same next one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from outdraft.distill.clock import Stopwatch, Tell
from outdraft.distill.files import read_object, write_json
from outdraft.distill.prompts import Asked, Documents, PromptMaker, Turns
from outdraft.distill.sampler import Sampler, Wanted, Written
from outdraft.distill.shards import Corpus, Text, write_shard
from outdraft.distill.split import first_of_each, for_training, held_out
from outdraft.distill.target import Target
from outdraft.errors import OptionError
from outdraft.workload.prompt import Prompt

HELD_OUT_TEMPERATURES = (0.0, 0.7, 1.0)
_MANIFEST, _HELD_OUT = "data.json", "held-out.safetensors"
_TURN_TOKENS = 160  # of a user's turn that the target writes
_TURN_TEMPERATURES = (0.6, 0.8, 1.0)
_MAX_DOCUMENTS = 2048  # texts that prompts of the next shard are derived from
_GREEDY_SHARE = 0.5
_GPU_TEXTS, _CPU_TEXTS = 2048, 16  # written at once
_SHARD_ROUNDS = 8  # a shard has so many times that
_CACHE_SHARE = 0.4  # of a GPU's memory


@dataclass(frozen=True, slots=True)
class DataSettings:
    seed: int = 0
    room: int = 768  # tokens of a text, prompt included
    max_tokens: int = 256  # of an answer
    top: int = 32  # likeliest tokens kept for each
    shard_texts: int | None = None  # None: by the device
    max_answer_tokens: int | None = None  # stop when there are so many
    budget_s: float = 480.0
    held_out_prompts: int | None = None  # of each category that measure; None: all held out
    held_out_tokens: int = 128  # of an answer that measures


def shard_paths(folder: Path) -> list[Path]:
    return sorted(folder.glob("shard-*.safetensors"))


def held_out_path(folder: Path) -> Path:
    return folder / _HELD_OUT


def data_folders(folder: Path, target: Target) -> list[Path]:
    """It, and those in it, that hold texts of this target: several runs may write beside each
    other, with seeds and folders of their own, for one training."""
    inside = sorted(folder.iterdir()) if folder.is_dir() else []
    found = [each for each in (folder, *inside) if (each / _MANIFEST).is_file()]
    manifests = [read_object(each / _MANIFEST) for each in found]
    for each, manifest in zip(found, manifests, strict=True):
        if manifest.get("target") != target.identity():
            raise OptionError(f"{each} holds texts of another target; choose another --data")
        if manifest.get("top") != manifests[0].get("top"):
            raise OptionError(
                f"{each} keeps {manifest.get('top')} likeliest tokens, {found[0]} "
                f"{manifests[0].get('top')}; they cannot be learned from together"
            )
    return [each for each in found if shard_paths(each) and held_out_path(each).exists()]


def make_data(
    target: Target, prompts: Sequence[Prompt], folder: Path, settings: DataSettings, tell: Tell
) -> dict[str, int]:
    """Makes what is missing; how many texts and answer tokens there are then."""
    clock = Stopwatch()
    _check_manifest(target, folder, settings)
    turns = Turns(target.tokenizer)
    sampler = _make_sampler(target, settings)
    if not held_out_path(folder).exists():
        tell("data", 0.0, "held-out prompts")
        chosen = first_of_each(held_out(prompts), settings.held_out_prompts)
        _write_held_out(target, sampler, turns, chosen, folder, settings)
    training = for_training(prompts)
    maker = PromptMaker(training, turns)
    counted = [_count(path) for path in shard_paths(folder)]
    longest = 0.0  # seconds of a shard
    while True:
        answers = sum(tokens for _, tokens in counted)
        enough = settings.max_answer_tokens is not None and answers >= settings.max_answer_tokens
        # The next one must fit; a budget that has room for none still gets one.
        late = clock.seconds + 0.8 * longest > settings.budget_s
        if counted and (enough or late):
            break
        before = clock.seconds
        index = len(counted)

        def told(done: int, index: int = index, answers: int = answers) -> None:
            share = clock.seconds / settings.budget_s
            if settings.max_answer_tokens:
                share = max(share, (answers + done) / settings.max_answer_tokens)
            rate = done / max(clock.seconds - before, 1e-9)  # noqa: B023
            words = f"shard {index}, {answers + done:,} answer tokens, {rate:,.0f}/s"
            tell("data", min(share, 1.0), words)

        texts = _make_shard(target, sampler, maker, folder, index, settings, told)
        path = folder / f"shard-{index:05}.safetensors"
        write_shard(path, texts)
        counted.append((len(texts), sum(len(text.written.tokens) for text in texts)))
        longest = max(longest, clock.seconds - before)
    tell("data", 1.0, "done")
    return {"texts": sum(n for n, _ in counted), "answer_tokens": sum(n for _, n in counted)}


def _make_shard(
    target: Target,
    sampler: Sampler,
    maker: PromptMaker,
    folder: Path,
    index: int,
    settings: DataSettings,
    told: Callable[[int], None],
) -> list[Text]:
    """User's turns that are only begun are finished first; their answers follow at once."""
    draw = random.Random(settings.seed * 1_000_003 + index)
    documents = _documents(target, folder, index, draw)
    count = settings.shard_texts or _SHARD_ROUNDS * num_texts_at_once(target, settings)
    longest = settings.room - settings.max_tokens
    asked = [one for one in maker.make(count, documents, draw) if len(one.tokens) <= longest]
    if not asked:
        raise OptionError(
            f"none of {count} prompts fits {longest} tokens; give a larger --room or other prompts"
        )
    temperatures = [_temperature(one, index, draw) for one in asked]
    wanted = [
        Wanted(one.tokens, draw.choice(_TURN_TEMPERATURES), _TURN_TOKENS)
        if one.is_begun
        else Wanted(one.tokens, temperature, settings.max_tokens)
        for one, temperature in zip(asked, temperatures, strict=True)
    ]
    done = 0

    def follow(number: int, written: Written) -> Wanted | None:
        nonlocal done
        one = asked[number]
        if not one.is_begun:
            done += len(written.tokens)
            told(done)
            return None
        # A turn that was cut is no question; one of nothing is none either.
        if not written.has_ended or len(written.tokens) < 2:
            return None
        tokens = maker.turns.finished(one.tokens, written.tokens[:-1].tolist())
        if len(tokens) > longest:
            return None
        asked.append(Asked(tokens, one.category))
        temperatures.append(temperatures[number])
        return Wanted(tokens, temperatures[number], settings.max_tokens)

    answers = sampler.run(wanted, draw.getrandbits(62), follow)
    return [
        Text(one.tokens, answer, temperature, one.category)
        for one, answer, temperature in zip(asked, answers, temperatures, strict=True)
        if not one.is_begun
    ]


def _temperature(one: Asked, shard: int, draw: random.Random) -> float:
    """Half are greedy; a prompt that comes again and again is so only once."""
    if draw.random() < _GREEDY_SHARE and not (one.is_own and shard > 0):
        return 0.0
    return round(draw.uniform(0.3, 1.0), 2)


def _documents(target: Target, folder: Path, index: int, draw: random.Random) -> Documents:
    """Some of the texts of the shard before."""
    documents = Documents()
    for path in shard_paths(folder)[max(0, index - 1) : index]:
        answers = list(Corpus([path]).answers())
        for answer in draw.sample(answers, min(_MAX_DOCUMENTS, len(answers))):
            if int(answer[-1]) in target.eos_ids:
                documents.add(target.tokenizer.decode(answer.tolist()))
    return documents


def _write_held_out(
    target: Target,
    sampler: Sampler,
    turns: Turns,
    prompts: Sequence[Prompt],
    folder: Path,
    settings: DataSettings,
) -> None:
    longest = settings.room - settings.held_out_tokens
    pairs = [
        (prompt, tokens, temperature)
        for temperature in HELD_OUT_TEMPERATURES
        for prompt in prompts
        if len(tokens := turns.asked(prompt)) <= longest
    ]
    if not pairs:
        raise OptionError(f"no held-out prompt fits {longest} tokens; give a larger --room")
    wanted = [
        Wanted(tokens, temperature, settings.held_out_tokens) for _, tokens, temperature in pairs
    ]
    answers = sampler.run(wanted, settings.seed)
    texts = [
        Text(tokens, answer, temperature, prompt.category)
        for (prompt, tokens, temperature), answer in zip(pairs, answers, strict=True)
    ]
    write_shard(held_out_path(folder), texts)


def num_texts_at_once(target: Target, settings: DataSettings) -> int:
    """As many as fit a share of a GPU's memory."""
    if target.device.type != "cuda":
        return _CPU_TEXTS
    total = torch.cuda.get_device_properties(target.device).total_memory
    itemsize = target.network.embedding.element_size()
    per_text = settings.room * target.spec.kv_bytes_per_token(itemsize)
    return max(1, min(_GPU_TEXTS, int(total * _CACHE_SHARE) // per_text))


def _make_sampler(target: Target, settings: DataSettings) -> Sampler:
    return Sampler(
        target.network,
        num_texts=num_texts_at_once(target, settings),
        room=settings.room,
        max_tokens=settings.max_tokens,
        eos_ids=target.eos_ids,
        top=settings.top,
    )


def _count(path: Path) -> tuple[int, int]:
    corpus = Corpus([path])
    return len(corpus), corpus.num_answer_tokens


def _check_manifest(target: Target, folder: Path, settings: DataSettings) -> None:
    mine = {
        "version": 1,
        "target": target.identity(),
        "seed": settings.seed,
        "room": settings.room,
        "max_tokens": settings.max_tokens,
        "top": settings.top,
    }
    path = folder / _MANIFEST
    if not path.exists():
        write_json(path, mine)
        return
    found = read_object(path)
    for key, value in mine.items():
        if found.get(key) != value:
            raise OptionError(
                f"{folder} holds texts made with {key} {found.get(key)!r}, now it is {value!r}; "
                "choose another --data"
            )
