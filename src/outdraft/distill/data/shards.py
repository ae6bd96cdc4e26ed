"""The target's texts on disk, in shards, and back in batches.

A shard is one safetensors file. n texts with A answer tokens in all:

    tokens (all texts, one after another) int32 · lengths (n) · prompt_lengths (n) int32
    temperatures (n) float32 · categories (n) uint8, indices into the metadata's list
    top_ids (A, top) int16, read as unsigned (int32 where the vocabulary is over 65,536)
    top_logprobs (A, top) float16: of the target's likeliest tokens, at temperature 1

Only answers are trained on, because a draft predicts only them; prompts are their context.
"""

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from outdraft.distill.data.sampler import SampledText
from outdraft.errors import OptionError
from outdraft.whole_file import write_whole

_SMALL_VOCAB = 1 << 16
_SORTED_BATCHES = 32  # texts of this many batches are sorted by length, then cut


@dataclass(frozen=True, slots=True)
class TrainingText:
    prompt: Sequence[int]
    answer: SampledText
    temperature: float
    category: str


@dataclass(frozen=True, slots=True)
class TextBatch:
    """Texts padded at their end to one length."""

    tokens: Tensor  # (B, T) int64
    is_answer: Tensor  # (B, T) bool
    top_ids: Tensor  # (A, top) int64, one row for each answer token, text after text
    top_logprobs: Tensor  # (A, top) float32


def write_shard(path: Path, texts: Sequence[TrainingText]) -> None:
    names = sorted({text.category for text in texts})
    tokens = [torch.cat([torch.tensor(text.prompt).int(), text.answer.tokens]) for text in texts]
    top_ids = torch.cat([text.answer.top_ids for text in texts])
    tensors = {
        "tokens": torch.cat(tokens),
        "lengths": torch.tensor([len(one) for one in tokens]).int(),
        "prompt_lengths": torch.tensor([len(text.prompt) for text in texts]).int(),
        "temperatures": torch.tensor([text.temperature for text in texts]),
        "categories": torch.tensor([names.index(text.category) for text in texts]).byte(),
        "top_ids": top_ids.to(torch.int16) if int(top_ids.max()) < _SMALL_VOCAB else top_ids,
        "top_logprobs": torch.cat([text.answer.top_logprobs for text in texts]),
    }
    write_whole(path, lambda file: file.write(save(tensors, {"categories": json.dumps(names)})))


class Corpus:
    """The texts of some shards, in memory."""

    def __init__(self, paths: Sequence[Path]) -> None:
        parts: list[dict[str, Tensor]] = []
        self.categories: list[str] = []  # of each text
        for path in paths:
            try:
                with safe_open(path, framework="pt") as file:
                    part = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                    names = json.loads(file.metadata()["categories"])
            except (OSError, SafetensorError, KeyError, TypeError) as error:
                raise OptionError(
                    f"{path} is no shard of texts ({error}); remove it and it is made again"
                ) from error
            self.categories += [names[index] for index in part["categories"].tolist()]
            parts.append(part)

        if len({part["top_ids"].dtype for part in parts}) > 1:  # as small ids may be stored shorter
            for part in parts:
                part["top_ids"] = _token_ids(part["top_ids"]).int()

        def join(name: str) -> Tensor:
            # Parts are freed as they are joined: together they may be most of the memory.
            return torch.cat([part.pop(name) for part in parts])

        self.lengths: list[int] = join("lengths").tolist()
        self.prompt_lengths: list[int] = join("prompt_lengths").tolist()
        self.temperatures = join("temperatures")
        sizes = [a - b for a, b in zip(self.lengths, self.prompt_lengths, strict=True)]
        self.num_answer_tokens = sum(sizes)
        self._tokens, self._tops = join("tokens"), (join("top_ids"), join("top_logprobs"))
        # Plain numbers: batches are put together text by text.
        self._starts = [0, *accumulate(self.lengths)]
        self._answer_starts = [0, *accumulate(sizes)]

    def __len__(self) -> int:
        return len(self.lengths)

    def answers(self) -> Iterator[Tensor]:
        """Each text's answer tokens."""
        for index, prompt in enumerate(self.prompt_lengths):
            yield self._tokens[self._starts[index] + prompt : self._starts[index + 1]]

    def frequencies(self, vocab_size: int) -> Tensor:
        """(vocab,) how often each token occurs in the answers."""
        return torch.bincount(torch.cat(list(self.answers())).long(), minlength=vocab_size)

    def batch(self, members: Sequence[int], device: torch.device) -> TextBatch:
        tokens = pad_sequence(_parts(self._tokens, self._starts, members), batch_first=True)
        positions = torch.arange(tokens.shape[1])
        begins = torch.tensor([self.prompt_lengths[index] for index in members])[:, None]
        ends = torch.tensor([self.lengths[index] for index in members])[:, None]
        is_answer = (positions >= begins) & (positions < ends)
        tops = [torch.cat(_parts(each, self._answer_starts, members)) for each in self._tops]
        moved = [each.to(device, non_blocking=True) for each in (tokens, is_answer, *tops)]
        return TextBatch(moved[0].long(), moved[1], _token_ids(moved[2]), moved[3].float())

    def epoch(self, max_tokens: int, seed: int) -> list[list[int]]:
        """Batches of every text once, in random order; see `by_length` for their sizes."""
        draw = random.Random(seed)
        order = list(range(len(self)))
        draw.shuffle(order)
        average = max(1, sum(self.lengths) // len(self))
        window = max(1, max_tokens // average) * _SORTED_BATCHES
        batches: list[list[int]] = []
        for at in range(0, len(order), window):
            batches += self.by_length(order[at : at + window], max_tokens)
        draw.shuffle(batches)
        return batches

    def by_length(self, members: Sequence[int], max_tokens: int) -> list[list[int]]:
        """Batches of texts of like lengths, each of one text or at most max_tokens with padding."""
        batches: list[list[int]] = []
        for index in sorted(members, key=self.lengths.__getitem__):
            # Lengths ascend: the newest text is the longest.
            if batches and (len(batches[-1]) + 1) * self.lengths[index] <= max_tokens:
                batches[-1].append(index)
            else:
                batches.append([index])
        return batches


def _parts(stored: Tensor, starts: Sequence[int], members: Sequence[int]) -> list[Tensor]:
    return [stored[starts[index] : starts[index + 1]] for index in members]


def _token_ids(stored: Tensor) -> Tensor:
    """int64, from int32 or from int16 that is read as unsigned."""
    return stored.long() & (_SMALL_VOCAB - 1) if stored.dtype == torch.int16 else stored.long()
