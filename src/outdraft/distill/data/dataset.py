"""The data stage: the target answers prompts, shard after shard, until time or tokens run out.

    DIR/data.json             the target and the settings; a run with others is refused
    DIR/held-out.safetensors  answers to held-out prompts at 0, 0.7 and 1.0, only for measuring
    DIR/shard-00000.safetensors …
    DIR/training_prompts.txt  digests of the prompts that they were made from

Shard i depends only on the seed, on i and on the shards before it, so a run that was killed
continues with the shard it would have made.
"""

import itertools
import math
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from outdraft.distill.data.prompts import (
    ChatFormat,
    Documents,
    PromptMaker,
    TrainingPrompt,
    first_of_each,
)
from outdraft.distill.data.sampler import SampledText, SampleRequest, TextSampler
from outdraft.distill.data.shards import Corpus, TrainingText, write_shard
from outdraft.distill.settings import DataSettings, OnProgress
from outdraft.distill.target import Target
from outdraft.errors import OptionError
from outdraft.whole_file import read_json, write_json
from outdraft.workload.prompt import Prompt
from outdraft.workload.training import add_training_digests

HELD_OUT_TEMPERATURES = (0.0, 0.7, 1.0)
_MANIFEST, _HELD_OUT = "data.json", "held-out.safetensors"
_TURN_TOKENS = 160  # of a user's turn that the target writes
_TURN_TEMPERATURES = (0.6, 0.8, 1.0)
_MAX_DOCUMENTS = 2048  # texts of a shard that prompts of the next one are derived from
_GREEDY_SHARE = 0.5
_GPU_TEXTS, _CPU_TEXTS = 2048, 16  # sampled at once
_SHARD_ROUNDS = 8  # a shard has this many times as many texts
_CACHE_SHARE = 0.4  # of a GPU's memory


def shard_paths(folder: Path) -> list[Path]:
    return sorted(folder.glob("shard-*.safetensors"))


def _shard_path(folder: Path, number: int) -> Path:
    return folder / f"shard-{number:05}.safetensors"


def held_out_path(folder: Path) -> Path:
    return folder / _HELD_OUT


def data_folders(folder: Path, target: Target) -> list[Path]:
    """The folder and those in it that hold texts of this target.

    Several runs may sample at once for one training, each with a seed and a folder of its own.
    """
    inside = sorted(folder.iterdir()) if folder.is_dir() else []
    folders = [each for each in (folder, *inside) if (each / _MANIFEST).is_file()]
    manifests = [read_json(each / _MANIFEST) for each in folders]
    for each, manifest in zip(folders, manifests, strict=True):
        if manifest.get("target") != target.identity():
            raise OptionError(f"{each} holds texts of another target; choose another --data")
        if manifest.get("top") != manifests[0].get("top"):
            raise OptionError(
                f"{each} keeps {manifest.get('top')} likeliest tokens, {folders[0]} "
                f"{manifests[0].get('top')}; they cannot be learned from together"
            )
    return [each for each in folders if shard_paths(each) and held_out_path(each).exists()]


def make_data(
    target: Target,
    training: Sequence[Prompt],
    held_out: Sequence[Prompt],
    folder: Path,
    settings: DataSettings,
    on_progress: OnProgress,
) -> dict[str, int]:
    """Makes the shards that are missing; returns how many texts and answer tokens there are."""
    started = time.monotonic()
    _check_manifest(target, folder, settings)
    num_texts = _CPU_TEXTS
    if target.device.type == "cuda":  # as many as fit a share of its memory
        memory = torch.cuda.get_device_properties(target.device).total_memory
        token_bytes = target.spec.kv_bytes_per_token(target.network.embedding.element_size())
        fitting = int(memory * _CACHE_SHARE) // (settings.room * token_bytes)
        num_texts = max(1, min(_GPU_TEXTS, fitting))
    sampler = TextSampler(
        target.network,
        num_texts=num_texts,
        room=settings.room,
        max_tokens=settings.answer_tokens,
        eos_ids=target.eos_ids,
        top=settings.top_logits,
    )
    chat = ChatFormat(target.tokenizer)
    if not held_out_path(folder).exists():
        on_progress("data", 0.0, "held-out prompts")
        chosen = first_of_each(held_out, settings.held_out_prompts)
        write_shard(held_out_path(folder), _answer_held_out(sampler, chat, chosen, settings))
    maker = PromptMaker(training, chat)
    num_prompts = settings.shard_texts or _SHARD_ROUNDS * num_texts
    most = settings.max_answer_tokens
    num_made, num_answer_tokens = 0, 0
    for path in shard_paths(folder):
        earlier = Corpus([path])
        num_made += len(earlier)
        num_answer_tokens += earlier.num_answer_tokens
    shard, shard_started, longest = 0, started, 0.0  # longest: seconds of a shard

    def report(done: int) -> None:
        now, total = time.monotonic(), num_answer_tokens + done
        share = max((now - started) / settings.budget_s, total / (most or math.inf))
        rate = done / max(now - shard_started, 1e-9)
        words = f"shard {shard}, {total:,} answer tokens, {rate:,.0f}/s"
        on_progress("data", min(share, 1.0), words)

    while True:
        shard_started = time.monotonic()
        # Another shard must fit, but a budget too small for any still gets one.
        is_late = shard_started - started + 0.8 * longest > settings.budget_s
        if num_made and (is_late or (most is not None and num_answer_tokens >= most)):
            break
        shard = next(n for n in itertools.count() if not _shard_path(folder, n).exists())
        draw = random.Random(settings.seed * 1_000_003 + shard)
        documents = _documents(target, _shard_path(folder, shard - 1), draw)
        drawn = maker.make(num_prompts, documents, draw)
        made = _answer(sampler, chat, drawn, shard, settings, draw, report)
        # First: a run that is killed here lists prompts too many, never too few.
        add_training_digests(folder, (prompt.digest for prompt in training))
        write_shard(_shard_path(folder, shard), made)
        num_made += len(made)
        num_answer_tokens += sum(len(text.answer.tokens) for text in made)
        longest = max(longest, time.monotonic() - shard_started)
    on_progress("data", 1.0, "done")
    return {"texts": num_made, "answer_tokens": num_answer_tokens}


def _answer(
    sampler: TextSampler,
    chat: ChatFormat,
    drawn: Sequence[TrainingPrompt],
    shard: int,
    settings: DataSettings,
    draw: random.Random,
    report: Callable[[int], None],
) -> list[TrainingText]:
    """The texts of one shard. User turns that are only begun are completed first, then answered."""
    longest = settings.room - settings.answer_tokens
    prompts = [prompt for prompt in drawn if len(prompt.tokens) <= longest]
    if not prompts:
        raise OptionError(
            f"none of {len(drawn)} prompts fits {longest} tokens; give a larger --room or other "
            "prompts"
        )
    temperatures = [_temperature(prompt, shard, draw) for prompt in prompts]
    requests = [
        SampleRequest(prompt.tokens, draw.choice(_TURN_TEMPERATURES), _TURN_TOKENS)
        if prompt.is_begun
        else SampleRequest(prompt.tokens, temperature, settings.answer_tokens)
        for prompt, temperature in zip(prompts, temperatures, strict=True)
    ]
    num_answer_tokens = 0

    def follow(index: int, text: SampledText) -> SampleRequest | None:
        nonlocal num_answer_tokens
        prompt = prompts[index]
        if not prompt.is_begun:
            num_answer_tokens += len(text.tokens)
            report(num_answer_tokens)
            return None
        # A turn that was cut off, or is empty, is no question.
        if not text.has_ended or len(text.tokens) < 2:
            return None
        tokens = chat.complete_turn(prompt.tokens, text.tokens[:-1].tolist())
        if len(tokens) > longest:
            return None
        prompts.append(TrainingPrompt(tokens, prompt.category))
        temperatures.append(temperatures[index])
        return SampleRequest(tokens, temperatures[index], settings.answer_tokens)

    answers = sampler.run(requests, draw.getrandbits(62), follow)
    return [
        TrainingText(prompt.tokens, answer, temperature, prompt.category)
        for prompt, answer, temperature in zip(prompts, answers, temperatures, strict=True)
        if not prompt.is_begun
    ]


def _temperature(prompt: TrainingPrompt, shard: int, draw: random.Random) -> float:
    """Half are greedy; a given prompt only in the first shard, as its answer would come again."""
    if draw.random() < _GREEDY_SHARE and not (prompt.is_own and shard > 0):
        return 0.0
    return round(draw.uniform(0.3, 1.0), 2)


def _documents(target: Target, path: Path, draw: random.Random) -> Documents:
    """Some of the finished texts of the shard before, if there is one."""
    documents = Documents()
    answers = list(Corpus([path]).answers()) if path.exists() else []
    for answer in draw.sample(answers, min(_MAX_DOCUMENTS, len(answers))):
        if int(answer[-1]) in target.eos_ids:
            documents.add(target.tokenizer.decode(answer.tolist()))
    return documents


def _answer_held_out(
    sampler: TextSampler, chat: ChatFormat, prompts: Sequence[Prompt], settings: DataSettings
) -> list[TrainingText]:
    longest = settings.room - settings.held_out_tokens
    requests = [
        (prompt, SampleRequest(tokens, temperature, settings.held_out_tokens))
        for temperature in HELD_OUT_TEMPERATURES
        for prompt in prompts
        if len(tokens := chat.encode_prompt(prompt)) <= longest
    ]
    if not requests:
        raise OptionError(f"no held-out prompt fits {longest} tokens; give a larger --room")
    answers = sampler.run([request for _, request in requests], settings.seed)
    return [
        TrainingText(request.prompt, answer, request.temperature, prompt.category)
        for (prompt, request), answer in zip(requests, answers, strict=True)
    ]


def _check_manifest(target: Target, folder: Path, settings: DataSettings) -> None:
    manifest = {
        "version": 1,
        "target": target.identity(),
        "seed": settings.seed,
        "room": settings.room,
        "max_tokens": settings.answer_tokens,
        "top": settings.top_logits,
    }
    path = folder / _MANIFEST
    if not path.exists():
        write_json(path, manifest, indent=2)
    earlier = read_json(path)
    for key, value in manifest.items():
        if earlier.get(key) != value:
            raise OptionError(
                f"{folder} holds texts made with {key} {earlier.get(key)!r}, now it is {value!r}; "
                "choose another --data"
            )
