"""Writes a thousand texts at once, and keeps what the target thought of every token.

The engine serves many kinds of requests and pays for it in Python: some 30 ms for a step of 512
sequences, whatever computes it. Here all texts advance by one token in a handful of tensor
operations; on a GPU the forward pass is recorded once and replayed. Texts that have ended make
room for waiting ones every few steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import torch
from torch import Tensor

from outdraft.distill.network import Network

_STEPS_BETWEEN_LOOKS = 16  # looking whether texts have ended makes the GPU wait
_LENGTH_UNIT = 128  # the cache is read in multiples of it; each has its own recording
_PREFILL_TOKENS = 1 << 15
_TINY = 1e-30  # a draw of exactly 0 would win against everything


@dataclass(frozen=True, slots=True)
class Wanted:
    prompt: Sequence[int]
    temperature: float
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Written:
    """One text. Of its n tokens the target's likeliest alternatives are kept, best first."""

    tokens: Tensor  # (n,) int32
    top_ids: Tensor  # (n, top) int32
    top_logprobs: Tensor  # (n, top) float16, at temperature 1
    has_ended: bool  # by an end-of-text token, which is the last one; else it was cut


class Sampler:
    def __init__(
        self,
        network: Network,
        *,
        num_texts: int,
        room: int,
        max_tokens: int,
        eos_ids: Sequence[int],
        top: int,
    ) -> None:
        """num_texts are written at once, none longer than `room`, `max_tokens` of them new."""
        self._network = network
        self._top = min(top, network.spec.vocab_size)
        self._num_texts = num_texts
        self._room = room
        self._max_tokens = max_tokens
        device = network.device
        self._device = device
        self._cache = network.make_cache(num_texts, room)
        self._last = torch.zeros(num_texts, dtype=torch.long, device=device)
        self._eos = torch.tensor(list(eos_ids), dtype=torch.long, device=device)
        self._out = torch.zeros(num_texts, max_tokens, dtype=torch.int32, device=device)
        shape = (num_texts, max_tokens, self._top)
        self._ids = torch.zeros(shape, dtype=torch.int32, device=device)
        self._logprobs = torch.zeros(shape, dtype=torch.float16, device=device)
        self._count = torch.zeros_like(self._last)
        self._limit = torch.zeros_like(self._last)
        self._is_live = torch.zeros(num_texts, dtype=torch.bool, device=device)
        self._scale = torch.ones(num_texts, 1, device=device)  # 1 / temperature
        self._heat = torch.zeros(num_texts, 1, device=device)  # 0 takes the likeliest
        self._recordings: dict[int, tuple[torch.cuda.CUDAGraph, Tensor]] = {}
        self._may_record = device.type == "cuda"

    @torch.inference_mode()
    def run(
        self,
        first: Sequence[Wanted],
        seed: int,
        follow: Callable[[int, Written], Wanted | None] = lambda index, written: None,
    ) -> list[Written]:
        """The texts in the order they were wanted in; the same for a seed on one machine.

        `follow` is told of each text that has ended and may want another one because of it,
        which joins the end of the list.
        """
        wanted = list(first)
        generator = torch.Generator(self._device).manual_seed(seed)
        written: dict[int, Written] = {}
        # By length: those that are filled in together are padded little.
        waiting = sorted(range(len(wanted)), key=lambda i: len(wanted[i].prompt), reverse=True)
        held: list[int | None] = [None] * self._num_texts
        self._is_live.zero_()
        while len(written) < len(wanted):
            free = [row for row, index in enumerate(held) if index is None]
            fill = [(row, waiting.pop()) for row in free[: len(waiting)]]
            for row, index in fill:
                held[row] = index
            self._fill([(row, wanted[index]) for row, index in fill])
            live_rows = [row for row, index in enumerate(held) if index is not None]
            length = self._room if self._cache.attend else self._reach(live_rows)
            for _ in range(_STEPS_BETWEEN_LOOKS):
                self._advance(length, generator)
            is_live = self._is_live.tolist()
            for row, text in self._taken([row for row in live_rows if not is_live[row]]):
                ended = held[row]
                assert ended is not None
                written[ended] = text
                held[row] = None
                another = follow(ended, text)
                if another is not None:
                    waiting.append(len(wanted))
                    wanted.append(another)
        return [written[index] for index in range(len(wanted))]

    def _reach(self, live_rows: Sequence[int]) -> int:
        """As far as any text comes before the next look."""
        furthest = int(self._cache.at[live_rows].max()) + _STEPS_BETWEEN_LOOKS
        return min(-(-(furthest + 1) // _LENGTH_UNIT) * _LENGTH_UNIT, self._room)

    def _fill(self, fill: Sequence[tuple[int, Wanted]]) -> None:
        """Puts prompts into free rows; all but their last tokens are computed at once."""
        if not fill:
            return
        size = max(1, _PREFILL_TOKENS // max(len(one.prompt) for _, one in fill))
        for at in range(0, len(fill), size):
            self._prefill(fill[at : at + size])
        rows = torch.tensor([row for row, _ in fill], device=self._device)

        def put(into: Tensor, values: Sequence[float]) -> None:
            column = torch.tensor(values, device=self._device, dtype=into.dtype)
            into[rows] = column.view(-1, *into.shape[1:])

        put(self._last, [one.prompt[-1] for _, one in fill])
        put(self._cache.at, [len(one.prompt) - 1 for _, one in fill])
        put(self._count, [0] * len(fill))
        put(
            self._limit,
            [
                min(one.max_tokens, self._max_tokens, self._room - len(one.prompt))
                for _, one in fill
            ],
        )
        put(self._is_live, [True] * len(fill))
        put(self._scale, [1 / one.temperature if one.temperature else 1.0 for _, one in fill])
        put(self._heat, [1.0 if one.temperature else 0.0 for _, one in fill])

    def _prefill(self, part: Sequence[tuple[int, Wanted]]) -> None:
        width = max(len(one.prompt) for _, one in part) - 1
        if width == 0:
            return
        padded = [[*one.prompt[:-1], *[0] * (width + 1 - len(one.prompt))] for _, one in part]
        rows = torch.tensor([row for row, _ in part], device=self._device)

        def keep(layer: int, keys: Tensor, values: Tensor) -> None:
            self._cache.keys[layer][rows, :, :width] = keys
            self._cache.values[layer][rows, :, :width] = values

        self._network(torch.tensor(padded, device=self._device), keep=keep)

    def _advance(self, length: int, generator: torch.Generator) -> None:
        """Every text by one token; those that have ended stand still."""
        logits = self._logits(length)
        best = logits.topk(self._top, dim=1)
        total = logits.logsumexp(1, keepdim=True)
        # argmax(logits / T + Gumbel noise) is a draw from softmax(logits / T).
        noise = torch.empty_like(logits).exponential_(generator=generator).clamp_(min=_TINY).log_()
        noise = (logits * self._scale).sub_(noise.mul_(self._heat))
        token = torch.where(self._heat[:, 0] > 0, noise.argmax(1), best.indices[:, 0])
        place = self._count.clamp(max=self._max_tokens - 1)
        rows = self._cache.rows
        live = self._is_live
        self._out[rows, place] = torch.where(live, token.int(), self._out[rows, place])
        # A row that stands still writes behind its text, or over its last place: guard that one.
        ids, logprobs = best.indices.int(), (best.values - total).half()
        self._ids[rows, place] = torch.where(live[:, None], ids, self._ids[rows, place])
        self._logprobs[rows, place] = torch.where(
            live[:, None], logprobs, self._logprobs[rows, place]
        )
        self._count += live
        self._last.copy_(torch.where(live, token, self._last))
        goes_on = live & ~torch.isin(token, self._eos) & (self._count < self._limit)
        self._cache.at += goes_on
        self._is_live.copy_(goes_on)

    def _logits(self, length: int) -> Tensor:
        """(num_texts, vocab) float32 for the tokens that are next."""
        if self._may_record and length not in self._recordings:
            self._record(length)
        if length in self._recordings:
            recording, result = self._recordings[length]
            recording.replay()
            return result
        return self._computed(length)

    def _computed(self, length: int) -> Tensor:
        self._cache.length = length
        return self._network.logits(self._network.step(self._last, self._cache)).float()

    def _record(self, length: int) -> None:
        """A CUDA graph of the step; without one (an old driver, no memory) it is computed."""
        try:
            aside = torch.cuda.Stream()
            aside.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(aside):
                for _ in range(2):
                    self._computed(length)  # the same keys again: harmless
            torch.cuda.current_stream().wait_stream(aside)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                result = self._computed(length)
            graph.replay()
            if not torch.allclose(result, self._computed(length), rtol=0.05, atol=0.5):
                raise RuntimeError("the recording computes something else")
            self._recordings[length] = (graph, result)
        except RuntimeError:
            self._may_record = False
            with suppress(RuntimeError):
                torch.cuda.synchronize()

    def _taken(self, rows: Sequence[int]) -> Iterator[tuple[int, Written]]:
        """The texts of these rows, brought to the host at once."""
        if not rows:
            return
        which = torch.tensor(rows, device=self._device)
        counts = self._count[which].tolist()
        ended = torch.isin(self._last[which], self._eos).tolist()
        longest = max(counts)
        out = self._out[which, :longest].cpu()
        ids, logprobs = self._ids[which, :longest].cpu(), self._logprobs[which, :longest].cpu()
        for place, row in enumerate(rows):
            n = counts[place]
            yield (
                row,
                Written(
                    out[place, :n].clone(),
                    ids[place, :n].clone(),
                    logprobs[place, :n].clone(),
                    bool(ended[place]),
                ),
            )
