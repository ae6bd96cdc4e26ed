"""Texts of the target on disk, in shards, and back in batches.

A shard is one safetensors file. n texts with A answer tokens together:

    tokens (all tokens, one text after another) int32 · lengths (n) · prompt_lengths (n) int32
    temperatures (n) float32 · categories (n) uint8, by place in the metadata's list
    top_ids (A, top) int16, without a sign (int32 where the vocabulary is over 65,536)
    top_logprobs (A, top) float16: what the target would have written

Answers are what a draft will have to guess, so only they are trained on; prompts are their
context.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from outdraft.distill.files import write_tensors
from outdraft.distill.sampler import Written
from outdraft.errors import OptionError

_SMALL_VOCAB = 1 << 16
_SORTED_BATCHES = 32  # so many batches' texts are sorted by length, then cut


@dataclass(frozen=True, slots=True)
class Text:
    prompt: Sequence[int]
    written: Written
    temperature: float
    category: str


@dataclass(frozen=True, slots=True)
class Batch:
    """Texts padded behind their end to one length."""

    tokens: Tensor  # (B, T) int64
    lengths: Tensor  # (B,)
    prompt_lengths: Tensor  # (B,)
    is_answer: Tensor  # (B, T) bool
    top_ids: Tensor  # (A, top) int64, of the answers' tokens row by row
    top_logprobs: Tensor  # (A, top) float32


def write_shard(path: Path, texts: Sequence[Text]) -> None:
    names = sorted({text.category for text in texts})
    tokens = [
        torch.cat([torch.tensor(list(text.prompt), dtype=torch.int32), text.written.tokens])
        for text in texts
    ]
    tensors = {
        "tokens": torch.cat(tokens),
        "lengths": torch.tensor([len(one) for one in tokens], dtype=torch.int32),
        "prompt_lengths": torch.tensor([len(text.prompt) for text in texts], dtype=torch.int32),
        "temperatures": torch.tensor([text.temperature for text in texts]),
        "categories": torch.tensor(
            [names.index(text.category) for text in texts], dtype=torch.uint8
        ),
        "top_ids": _packed(torch.cat([text.written.top_ids for text in texts])),
        "top_logprobs": torch.cat([text.written.top_logprobs for text in texts]),
    }
    write_tensors(path, tensors, {"categories": json.dumps(names)})


def _packed(ids: Tensor) -> Tensor:
    return ids.to(torch.int16) if int(ids.max()) < _SMALL_VOCAB else ids


def _unpacked(ids: Tensor) -> Tensor:
    return ids.long() & (_SMALL_VOCAB - 1) if ids.dtype == torch.int16 else ids.long()


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
            self.categories += [names[place] for place in part["categories"].tolist()]
            parts.append(part)

        def joined(name: str) -> Tensor:
            # Freed as it goes: the likeliest tokens of many texts are most of a machine's memory.
            return torch.cat([part.pop(name) for part in parts])

        self.tokens = joined("tokens")
        self.lengths = joined("lengths").long()
        self.prompt_lengths = joined("prompt_lengths").long()
        self.temperatures = joined("temperatures")
        self._top_ids, self._top_logprobs = joined("top_ids"), joined("top_logprobs")
        answers = self.lengths - self.prompt_lengths
        self.num_answer_tokens = int(answers.sum())
        # Plain numbers: batches are put together text by text.
        self._first: list[int] = (self.lengths.cumsum(0) - self.lengths).tolist()
        self._first_answer: list[int] = (answers.cumsum(0) - answers).tolist()
        self._sizes: list[int] = self.lengths.tolist()
        self._prompt_sizes: list[int] = self.prompt_lengths.tolist()

    def __len__(self) -> int:
        return len(self.lengths)

    def answers(self) -> Iterator[Tensor]:
        """Each text's answer tokens."""
        for index in range(len(self)):
            first = self._first[index]
            yield self.tokens[first + self._prompt_sizes[index] : first + self._sizes[index]]

    def prompt(self, index: int) -> Tensor:
        first = self._first[index]
        return self.tokens[first : first + self._prompt_sizes[index]]

    def frequencies(self, vocab_size: int) -> Tensor:
        """(vocab,) how often each token was written in an answer."""
        is_answer = torch.ones(len(self.tokens), dtype=torch.bool)
        for first, size in zip(self._first, self._prompt_sizes, strict=True):
            is_answer[first : first + size] = False
        return torch.bincount(self.tokens[is_answer].long(), minlength=vocab_size)

    def batch(self, which: Sequence[int], device: torch.device) -> Batch:
        lengths, prompts = self.lengths[list(which)], self.prompt_lengths[list(which)]
        width = int(lengths.max())
        tokens = torch.zeros(len(which), width, dtype=torch.int32)
        spans = []
        for row, index in enumerate(which):
            first, size = self._first[index], self._sizes[index]
            tokens[row, :size] = self.tokens[first : first + size]
            at = self._first_answer[index]
            spans.append((at, at + size - self._prompt_sizes[index]))
        top_ids = torch.cat([self._top_ids[a:b] for a, b in spans])
        top_logprobs = torch.cat([self._top_logprobs[a:b] for a, b in spans])
        place = torch.arange(width)
        is_answer = (place >= prompts[:, None]) & (place < lengths[:, None])

        def there(x: Tensor) -> Tensor:
            return x.to(device, non_blocking=True)

        return Batch(
            tokens=there(tokens).long(),
            lengths=there(lengths),
            prompt_lengths=there(prompts),
            is_answer=there(is_answer),
            top_ids=_unpacked(there(top_ids)),
            top_logprobs=there(top_logprobs).float(),
        )

    def epoch(self, max_tokens: int, seed: int) -> list[list[int]]:
        """Every text once, in batches of at most max_tokens with padding (or of one text)."""
        draw = random.Random(seed)
        order = list(range(len(self)))
        draw.shuffle(order)
        lengths = self._sizes
        average = max(1, sum(lengths) // len(lengths))
        window = max(1, max_tokens // average) * _SORTED_BATCHES
        batches: list[list[int]] = []
        for at in range(0, len(order), window):
            batches += _cut(sorted(order[at : at + window], key=lengths.__getitem__), lengths,
                            max_tokens)  # fmt: skip
        draw.shuffle(batches)
        return batches


def _cut(members: Sequence[int], lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    batches: list[list[int]] = []
    current: list[int] = []
    for index in members:  # ascending lengths: the newest is the longest
        if current and (len(current) + 1) * lengths[index] > max_tokens:
            batches.append(current)
            current = []
        current.append(index)
    return [*batches, current] if current else batches
