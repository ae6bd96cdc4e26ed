"""Samples thousands of texts at once, and keeps the target's likeliest tokens at each position.

The engine serves many kinds of requests and pays for that in Python, some 30 ms for a step of 512
sequences. Here all texts advance by one token in a few tensor operations; on a GPU the forward
pass is captured once as a CUDA graph and replayed. Every few steps, waiting texts take the rows of
those that have ended.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import torch
from torch import Tensor

from outdraft.distill.network import Network

_STEPS_BETWEEN_CHECKS = 16  # checking which texts have ended makes the GPU wait
_LENGTH_UNIT = 128  # the cache is read in multiples of it; each has a graph of its own
_PREFILL_TOKENS = 1 << 15
_TINY = 1e-30  # a draw of exactly 0 would win against everything


@dataclass(frozen=True, slots=True)
class SampleRequest:
    prompt: Sequence[int]
    temperature: float
    max_tokens: int


@dataclass(frozen=True, slots=True)
class SampledText:
    """n new tokens, and the target's likeliest tokens at each of their positions, best first."""

    tokens: Tensor  # (n,) int32
    top_ids: Tensor  # (n, top) int32
    top_logprobs: Tensor  # (n, top) float16, at temperature 1
    has_ended: bool  # the last token is an end-of-text token; else room, tokens or time ran out

    def first(self, count: int) -> "SampledText":
        """Its first tokens, where it has more than so many."""
        if count >= len(self.tokens):
            return self
        return SampledText(
            self.tokens[:count].clone(),
            self.top_ids[:count].clone(),
            self.top_logprobs[:count].clone(),
            has_ended=False,
        )


Follow = Callable[[int, SampledText], SampleRequest | None]


class TextSampler:
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
        """num_texts at a time; at most `room` tokens each, of which at most `max_tokens` new."""
        self._network = network
        self._top = min(top, network.spec.vocab_size)
        self.num_texts, self._room, self._max_tokens = num_texts, room, max_tokens
        self._device = device = network.device
        self._cache = network.make_cache(num_texts, room)
        self._eos = torch.tensor(list(eos_ids), dtype=torch.long, device=device)
        # One column more than needed: a text that has ended writes there, and nobody reads it.
        shape = (num_texts, max_tokens + 1)
        self._tokens = torch.zeros(shape, dtype=torch.int32, device=device)
        self._top_ids = torch.zeros((*shape, self._top), dtype=torch.int32, device=device)
        self._top_logprobs = torch.zeros((*shape, self._top), dtype=torch.float16, device=device)
        # By row: the last token, how many are new, and how many may be.
        self._last = torch.zeros(num_texts, dtype=torch.long, device=device)
        self._count, self._limit = torch.zeros_like(self._last), torch.zeros_like(self._last)
        self._is_live = torch.zeros(num_texts, dtype=torch.bool, device=device)
        self._scale = torch.ones(num_texts, 1, device=device)  # 1 / temperature
        self._noise = torch.zeros(num_texts, 1, device=device)  # 0: greedy, 1: sampled
        self._graphs: dict[int, tuple[torch.cuda.CUDAGraph, Tensor]] = {}  # by cache length
        self._can_capture = device.type == "cuda"

    def run(
        self, first: Sequence[SampleRequest], seed: int, follow: Follow = lambda index, text: None
    ) -> list[SampledText]:
        """The texts in the order of the requests; the same for a seed on one machine.

        `follow` is called with each text that has ended. It may return another request, which
        joins the end of the list.
        """
        texts = self.run_until(first, seed, lambda lengths: False, follow)
        return [texts[index] for index in range(len(texts))]

    @torch.inference_mode()
    def run_until(
        self,
        first: Sequence[SampleRequest],
        seed: int,
        is_over: Callable[[Mapping[int, int]], bool],
        follow: Follow = lambda index, text: None,
    ) -> dict[int, SampledText]:
        """The texts by the place of their request. Every few steps `is_over` is asked, with the
        length of each text that is being written; where it says so, these are cut and those that
        wait are left out."""
        requests = list(first)
        generator = torch.Generator(self._device).manual_seed(seed)
        texts: dict[int, SampledText] = {}
        # By length: prompts that are computed together then need little padding.
        waiting = sorted(range(len(requests)), key=lambda i: len(requests[i].prompt), reverse=True)
        in_row: dict[int, int] = {}  # row → index of the request
        self._is_live.zero_()
        while len(texts) < len(requests):
            free = [row for row in range(self.num_texts) if row not in in_row]
            started = {row: waiting.pop() for row in free[: len(waiting)]}
            in_row |= started
            self._start({row: requests[index] for row, index in started.items()})
            length = self._room  # of the cache: no text passes it before the next check
            if not self._cache.attend:
                end = int(self._cache.at[list(in_row)].max()) + _STEPS_BETWEEN_CHECKS + 1
                length = min(math.ceil(end / _LENGTH_UNIT) * _LENGTH_UNIT, self._room)
            for _ in range(_STEPS_BETWEEN_CHECKS):
                self._advance(length, generator)
            is_live = self._is_live.tolist()
            for row, text in self._collect([row for row in sorted(in_row) if not is_live[row]]):
                index = in_row.pop(row)
                texts[index] = text
                another = follow(index, text)
                if another is not None:
                    waiting.append(len(requests))
                    requests.append(another)
            rows = sorted(in_row)
            lengths = dict(zip(rows, self._count[rows].tolist(), strict=True))
            if is_over({in_row[row]: length for row, length in lengths.items()}):
                return texts | {in_row[row]: text for row, text in self._collect(rows)}
        return texts

    def _start(self, started: Mapping[int, SampleRequest]) -> None:
        """Puts requests into free rows; all prompt tokens but the last are computed at once."""
        if not started:
            return
        rows, requests = torch.tensor(list(started), device=self._device), list(started.values())
        size = max(1, _PREFILL_TOKENS // max(len(one.prompt) for one in requests))
        for at in range(0, len(requests), size):
            self._prefill(rows[at : at + size], requests[at : at + size])

        def put(into: Tensor, values: Sequence[float]) -> None:
            column = torch.tensor(values, device=self._device, dtype=into.dtype)
            into[rows] = column.view(-1, *into.shape[1:])

        most = [min(one.max_tokens, self._room - len(one.prompt)) for one in requests]
        put(self._last, [one.prompt[-1] for one in requests])
        put(self._cache.at, [len(one.prompt) - 1 for one in requests])
        put(self._limit, [min(each, self._max_tokens) for each in most])
        put(self._scale, [1 / one.temperature if one.temperature else 1.0 for one in requests])
        put(self._noise, [1.0 if one.temperature else 0.0 for one in requests])
        self._count[rows] = 0
        self._is_live[rows] = True

    def _prefill(self, rows: Tensor, requests: Sequence[SampleRequest]) -> None:
        width = max(len(one.prompt) for one in requests) - 1
        if width == 0:
            return
        padded = [[*one.prompt[:-1], *[0] * (width + 1 - len(one.prompt))] for one in requests]

        def keep(layer: int, keys: Tensor, values: Tensor) -> None:
            self._cache.keys[layer][rows, :, :width] = keys
            self._cache.values[layer][rows, :, :width] = values

        self._network(torch.tensor(padded, device=self._device), keep=keep)

    def _advance(self, length: int, generator: torch.Generator) -> None:
        """Adds one token to every live text."""
        logits = self._logits(length)
        best = logits.topk(self._top, dim=1)
        total = logits.logsumexp(1, keepdim=True)
        # argmax(logits / T + Gumbel noise) is a draw from softmax(logits / T).
        noise = torch.empty_like(logits).exponential_(generator=generator).clamp_(min=_TINY).log_()
        scores = (logits * self._scale).sub_(noise.mul_(self._noise))
        token = torch.where(self._noise[:, 0] > 0, scores.argmax(1), best.indices[:, 0])
        rows = self._cache.rows
        self._tokens[rows, self._count] = token.int()
        self._top_ids[rows, self._count] = best.indices.int()
        self._top_logprobs[rows, self._count] = (best.values - total).half()
        self._count += self._is_live
        self._last.copy_(token)
        self._is_live &= ~torch.isin(token, self._eos) & (self._count < self._limit)
        self._cache.at += self._is_live

    def _logits(self, length: int) -> Tensor:
        """(num_texts, vocab) float32 for the next tokens."""
        if self._can_capture and length not in self._graphs:
            self._capture(length)
        if length not in self._graphs:
            return self._compute(length)
        graph, result = self._graphs[length]
        graph.replay()
        return result

    def _compute(self, length: int) -> Tensor:
        self._cache.length = length
        return self._network.logits(self._network.step(self._last, self._cache)).float()

    def _capture(self, length: int) -> None:
        """Captures the step as a CUDA graph. Where that fails (an old driver, no memory), steps
        are computed without one."""
        try:
            side_stream = torch.cuda.Stream()
            side_stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side_stream):
                for _ in range(2):
                    self._compute(length)  # writes the same keys again: harmless
            torch.cuda.current_stream().wait_stream(side_stream)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                result = self._compute(length)
            graph.replay()
            if not torch.allclose(result, self._compute(length), rtol=0.05, atol=0.5):
                raise RuntimeError("the graph computes something else")
            self._graphs[length] = (graph, result)
        except RuntimeError:
            self._can_capture = False
            with suppress(RuntimeError):
                torch.cuda.synchronize()

    def _collect(self, rows: Sequence[int]) -> Iterator[tuple[int, SampledText]]:
        """The texts of these rows, copied to the host at once."""
        if not rows:
            return
        counts = self._count[rows].tolist()
        ended = torch.isin(self._tokens[rows, self._count[rows] - 1], self._eos).tolist()
        buffers = (self._tokens, self._top_ids, self._top_logprobs)
        copied = [each[rows, : max(counts)].cpu() for each in buffers]
        for at, (row, count) in enumerate(zip(rows, counts, strict=True)):
            tokens, top_ids, top_logprobs = (each[at, :count].clone() for each in copied)
            yield row, SampledText(tokens, top_ids, top_logprobs, has_ended=ended[at])
