"""The data stage: the target answers prompts, shard after shard, until time or tokens run out.

Both are looked at every few steps: texts that are not finished then are cut.

    DIR/data.json             the target and the settings; a run with others is refused
    DIR/held-out.safetensors  answers to held-out prompts at 0, 0.7 and 1.0, only for measuring
    DIR/shard-00000.safetensors …
    DIR/training_prompts.txt  digests of the prompts that they were made from
    DIR/spent.json            seconds that all runs of the stage took

Shard i depends only on the seed, on i and on the shards before it (and on where time or tokens
ended it), so a run that was killed continues with the shard it would have made.
"""

import itertools
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from outdraft.distill.data.prompts import (
    ChatFormat,
    Documents,
    PromptMaker,
    TrainingPrompt,
    first_of_each,
    in_rounds,
)
from outdraft.distill.data.sampler import SampledText, SampleRequest, TextSampler
from outdraft.distill.data.shards import Corpus, TrainingText, write_shard
from outdraft.distill.settings import DataSettings, OnProgress
from outdraft.distill.target import Target
from outdraft.distill.timing import HELD_OUT_SHARE
from outdraft.errors import OptionError
from outdraft.whole_file import read_json, write_json
from outdraft.workload.prompt import Prompt
from outdraft.workload.training import add_training_digests

HELD_OUT_TEMPERATURES = (0.0, 0.7, 1.0)
_MANIFEST, _HELD_OUT, SPENT = "data.json", "held-out.safetensors", "spent.json"
_TURN_TOKENS = 160  # of a user's turn that the target writes
_TURN_TEMPERATURES = (0.6, 0.8, 1.0)
_MAX_DOCUMENTS = 2048  # texts of a shard that prompts of the next one are derived from
_GREEDY_SHARE = 0.5
_GPU_TEXTS, _CPU_TEXTS = 2048, 16  # sampled at once
_GPU_ROUNDS, _CPU_ROUNDS = 8, 4  # a shard has this many times as many texts
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


def make_sampler(target: Target, settings: DataSettings) -> TextSampler:
    num_texts = _CPU_TEXTS
    if target.device.type == "cuda":  # as many as fit a share of its memory
        memory = torch.cuda.get_device_properties(target.device).total_memory
        token_bytes = target.spec.kv_bytes_per_token(target.network.embedding.element_size())
        fitting = int(memory * _CACHE_SHARE) // (settings.room * token_bytes)
        num_texts = max(1, min(_GPU_TEXTS, fitting))
    return TextSampler(
        target.network,
        num_texts=num_texts,
        room=settings.room,
        max_tokens=settings.answer_tokens,
        eos_ids=target.eos_ids,
        top=settings.top_logits,
    )


def make_data(
    target: Target,
    training: Sequence[Prompt],
    held_out: Sequence[Prompt],
    folder: Path,
    settings: DataSettings,
    on_progress: OnProgress,
    *,
    sampler: TextSampler | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, int]:
    """Makes the shards that are missing; returns how many texts and answer tokens there are."""
    _check_manifest(target, folder, settings)
    sampler = sampler or make_sampler(target, settings)
    time_of = _DataTime(folder, settings.budget_s, clock, on_progress)
    chat = ChatFormat(target.tokenizer)
    if not held_out_path(folder).exists():
        chosen = in_rounds(first_of_each(held_out, settings.held_out_prompts))
        answers = _answer_held_out(sampler, chat, chosen, settings, time_of)
        write_shard(held_out_path(folder), answers)
        time_of.save()
    maker = PromptMaker(training, chat)
    rounds = _GPU_ROUNDS if target.device.type == "cuda" else _CPU_ROUNDS
    num_prompts = settings.shard_texts or rounds * sampler.num_texts
    most = settings.max_answer_tokens
    num_made, num_answer_tokens = 0, 0
    for path in shard_paths(folder):
        earlier = Corpus([path])
        num_made += len(earlier)
        num_answer_tokens += earlier.num_answer_tokens
    # A budget too small for anything still gets a few texts.
    while not num_made or not (time_of.is_up() or (most and num_answer_tokens >= most)):
        shard = next(n for n in itertools.count() if not _shard_path(folder, n).exists())
        draw = random.Random(settings.seed * 1_000_003 + shard)
        documents = _documents(target, _shard_path(folder, shard - 1), draw)
        drawn = maker.make(num_prompts, documents, draw)
        made = _answer(
            sampler, chat, drawn, shard, settings, draw, time_of, num_answer_tokens, num_made == 0
        )
        if not made:  # time was up before the first answer
            break
        # First: a run that is killed here lists prompts too many, never too few.
        add_training_digests(folder, (prompt.digest for prompt in training))
        write_shard(_shard_path(folder, shard), made)
        time_of.save()
        num_made += len(made)
        num_answer_tokens += sum(len(text.answer.tokens) for text in made)
    on_progress("data", 1.0, f"done, {num_answer_tokens:,} answer tokens")
    return {"texts": num_made, "answer_tokens": num_answer_tokens}


class _DataTime:
    """The time of the stage, with what earlier runs of it took."""

    def __init__(
        self, folder: Path, budget_s: float, clock: Callable[[], float], on_progress: OnProgress
    ) -> None:
        self._path, self._budget_s, self._clock = folder / SPENT, budget_s, clock
        self._on_progress = on_progress
        self._started = clock() - seconds_spent(folder)
        self._looked_at, self._longest = clock(), 0.0  # between two looks

    @property
    def spent_s(self) -> float:
        return self._clock() - self._started

    def is_up(self, share: float = 1.0) -> bool:
        """Whether there is no time for what is done between two looks."""
        return self.spent_s + self._longest > share * self._budget_s

    def look(self, words: str, num_tokens: int = 0, most: int | None = None) -> None:
        """Once every few steps: how far it is."""
        now = self._clock()
        self._longest, self._looked_at = max(self._longest, now - self._looked_at), now
        share = max(self.spent_s / self._budget_s, num_tokens / most if most else 0.0)
        self._on_progress("data", min(share, 1.0), words)

    def save(self) -> None:
        write_json(self._path, {"seconds": round(self.spent_s, 3)})


def seconds_spent(folder: Path) -> float:
    """By all runs of the stage that wrote here."""
    path = folder / SPENT
    return float(read_json(path).get("seconds", 0.0)) if path.is_file() else 0.0


def _answer(
    sampler: TextSampler,
    chat: ChatFormat,
    drawn: Sequence[TrainingPrompt],
    shard: int,
    settings: DataSettings,
    draw: random.Random,
    time_of: _DataTime,
    num_before: int,
    needs_some: bool,
) -> list[TrainingText]:
    """The texts of one shard, or of a part where time or tokens run out. User turns that are only
    begun are completed first, then answered. `num_before`: answer tokens of earlier shards."""
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
    num_ended, most = 0, settings.max_answer_tokens

    def follow(index: int, text: SampledText) -> SampleRequest | None:
        nonlocal num_ended
        prompt = prompts[index]
        if not prompt.is_begun:
            num_ended += len(text.tokens)
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

    def is_over(lengths: Mapping[int, int]) -> bool:
        open_tokens = sum(n for index, n in lengths.items() if not prompts[index].is_begun)
        total = num_before + num_ended + open_tokens
        time_of.look(f"shard {shard}, {total:,} answer tokens", total, most)
        if needs_some and total == 0:
            return False
        return time_of.is_up() or (most is not None and total >= most)

    texts = sampler.run_until(requests, draw.getrandbits(62), is_over, follow)
    answers = [
        TrainingText(prompts[index].tokens, text, temperatures[index], prompts[index].category)
        for index, text in sorted(texts.items())
        if not prompts[index].is_begun
    ]
    return answers if most is None else _first_tokens(answers, most - num_before)


def _first_tokens(texts: Sequence[TrainingText], most: int) -> list[TrainingText]:
    """As many texts as have `most` answer tokens together; the last of them may be cut."""
    kept: list[TrainingText] = []
    for text in texts:
        if most <= 0:
            break
        kept.append(replace(text, answer=text.answer.first(most)))
        most -= len(text.answer.tokens)
    return kept


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
    sampler: TextSampler,
    chat: ChatFormat,
    prompts: Sequence[Prompt],
    settings: DataSettings,
    time_of: _DataTime,
) -> list[TrainingText]:
    """All categories and temperatures have a part of the time, however little it is."""
    longest = settings.room - settings.held_out_tokens
    requests = [
        (prompt, SampleRequest(tokens, temperature, settings.held_out_tokens))
        for prompt in prompts
        for temperature in HELD_OUT_TEMPERATURES
        if len(tokens := chat.encode_prompt(prompt)) <= longest
    ]
    if not requests:
        raise OptionError(f"no held-out prompt fits {longest} tokens; give a larger --room")
    size = min(len(requests), sampler.num_texts)
    texts: list[TrainingText] = []

    def is_over(lengths: Mapping[int, int]) -> bool:
        time_of.look(f"answers to held-out prompts, {len(texts) + len(lengths)} of {len(requests)}")
        return time_of.is_up(HELD_OUT_SHARE)

    # In parts of what is written at once: the sampler takes short prompts first.
    for at in range(0, len(requests), size):
        if texts and time_of.is_up(HELD_OUT_SHARE):
            break
        part = requests[at : at + size]
        asked = [request for _, request in part]
        answers = sampler.run_until(asked, settings.seed + at, is_over)
        texts += [
            TrainingText(part[index][1].prompt, answer, part[index][1].temperature,
                         part[index][0].category)
            for index, answer in sorted(answers.items())
        ]  # fmt: skip
    return texts


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
