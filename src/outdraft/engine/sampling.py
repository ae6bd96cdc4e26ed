"""From logits to tokens, reproducibly.

Position t of a text with seed s draws its noise from a counter-based generator keyed by
(s, t) and nothing else, so a text for a seed is the same with any proposer, any draft length and
any other requests in the batch. The next token is argmax(processed logits + noise),
which is a draw from softmax(processed logits) when the noise is Gumbel noise; at temperature
0 there is no noise.
"""

import math
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import torch
from torch import Tensor

from outdraft.engine.native import draws as native_draws
from outdraft.engine.native.draws import can_draw, draw_rows
from outdraft.engine.sequence import SamplingParams, Sequence


class Stream(IntEnum):
    """Independent noise for one (seed, position). Coupled drafts share the target's TOKEN."""

    TOKEN = 0
    DRAFT = 1  # a draft's own draw, under the rejection rule
    ACCEPT = 2  # the coin of the rejection rule


@dataclass(frozen=True, slots=True)
class Row:
    """One position whose token is to be drawn: a sequence, and drafts assumed before it."""

    sequence: Sequence
    drafts: Seq[int] = ()

    @property
    def params(self) -> SamplingParams:
        return self.sequence.params

    @property
    def position(self) -> int:
        return len(self.sequence.tokens) + len(self.drafts)

    @property
    def banned(self) -> frozenset[int]:
        """Tokens that would end the text before min_tokens."""
        written = self.position - self.sequence.num_prompt_tokens
        return self.sequence.stop_ids if written < self.params.min_tokens else frozenset()


_MASK64 = (1 << 64) - 1


def mix64(x: int) -> int:
    """A 64-bit finalizer (splitmix64): every input bit affects every output bit."""
    x = (x + 0x9E3779B97F4A7C15) & _MASK64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK64
    return x ^ (x >> 31)


def noise_key(seed: int, position: int, stream: Stream) -> int:
    return mix64(mix64(mix64(seed & _MASK64) ^ position) ^ stream)


def uniforms(keys: Seq[int], size: int, device: torch.device, ids: Tensor | None = None) -> Tensor:
    """(len(keys), size) numbers in (0, 1), each a function of its key and token id only.

    ids (size,) int32: of the columns, where they are not 0, 1, 2 … `native/draws.c` computes the
    same bits. Two rounds of a 32-bit mixer with half of the key put in before each. int32 overflow
    wraps; shifts are arithmetic in torch, so their sign bits are masked off.
    """
    words = torch.tensor([_signed(key, 64) for key in keys], dtype=torch.int64, device=device)
    low, high = words.to(torch.int32)[:, None], (words >> 32).to(torch.int32)[:, None]
    x = (torch.arange(size, dtype=torch.int32, device=device) if ids is None else ids) + low
    x = _mix32(x).bitwise_xor_(high)
    x = _mix32(x)
    # 31 bits, of which float32 keeps the leading 24: small numbers, which decide draws, keep
    # their precision. Half a step excludes 0, the clamp excludes 1.
    fraction = (x >> 1).bitwise_and_(0x7FFFFFFF).float().add_(0.5).mul_(2.0**-31)
    return fraction.clamp_(max=1 - 2.0**-24)


def _mix32(x: Tensor) -> Tensor:
    x = x.bitwise_xor_((x >> 16).bitwise_and_(0xFFFF)).mul_(0x7FEB352D)
    x = x.bitwise_xor_((x >> 15).bitwise_and_(0x1FFFF)).mul_(_signed(0x846CA68B, 32))
    return x.bitwise_xor_((x >> 16).bitwise_and_(0xFFFF))


def _signed(x: int, bits: int) -> int:
    return x - (1 << bits) if x >> (bits - 1) else x


def gumbel_noise(
    keys: Seq[int], size: int, device: torch.device, ids: Tensor | None = None
) -> Tensor:
    """(len(keys), size) standard Gumbel noise: -log of an exponential variable."""
    # log1p of the *negated* uniform: the upper tail, which decides draws, keeps its precision.
    return uniforms(keys, size, device, ids).neg_().log1p_().neg_().log_().neg_()


_MAX_SCALE = 1e30


def processed_logits(logits: Tensor, rows: Seq[Row]) -> Tensor:
    """Logits whose softmax is the distribution that each row's token is drawn from.

    logits (R, V) → (R, V). A row at temperature 0 keeps its scale and loses no tokens.
    May work in place: the given logits are not to be used afterwards.
    """
    logits = _penalized(logits, rows)
    logits = _biased(logits, rows)
    if any(row.params.temperature not in (0.0, 1.0) for row in rows):
        temperatures = [row.params.temperature or 1.0 for row in rows]
        # Logits stay finite at any temperature: infinity times 0 would be NaN.
        scale = [min(1 / temperature, _MAX_SCALE) for temperature in temperatures]
        logits = logits * torch.tensor(scale, device=logits.device)[:, None]
    return _truncated(logits, rows)


def _penalized(logits: Tensor, rows: Seq[Row]) -> Tensor:
    chosen = [index for index, row in enumerate(rows) if row.params.has_penalties]
    if not chosen:
        return logits
    size, device = logits.shape[1], logits.device
    # How often each token was written. The last column counts tokens that these logits lack:
    # a draft's vocabulary may be padded less than its target's.
    written: list[int] = []  # places in the table of counts, row by row
    read: list[int] = []
    for place, index in enumerate(chosen):
        row, first = rows[index], place * (size + 1)
        tokens, start = row.sequence.tokens, row.sequence.num_prompt_tokens
        written += [first + min(token, size) for token in (*tokens[start:], *row.drafts)]
        if row.params.repetition_penalty != 1.0:
            read += [first + min(token, size) for token in tokens[:start]]
    output = _counts(written, len(chosen), size, device)
    prompt = _counts(read, len(chosen), size, device) > 0

    def column(values: Seq[float]) -> Tensor:
        return torch.tensor(values, device=device)[:, None]

    params = [rows[index].params for index in chosen]
    which = torch.tensor(chosen, device=device)
    part = logits.index_select(0, which)
    repetition = column([p.repetition_penalty for p in params])
    scaled = torch.where(part > 0, part / repetition, part * repetition)
    part = torch.where(prompt | (output > 0), scaled, part)
    part = part - output * column([p.frequency_penalty for p in params])
    part = part - (output > 0) * column([p.presence_penalty for p in params])
    return logits.index_copy(0, which, part)


def _counts(places: list[int], num_rows: int, size: int, device: torch.device) -> Tensor:
    """(num_rows, size): how often each place of a table with one spare column is named."""
    at = torch.tensor(places, dtype=torch.long).to(device)
    return at.bincount(minlength=num_rows * (size + 1)).view(num_rows, -1)[:, :size].float()


def _biased(logits: Tensor, rows: Seq[Row]) -> Tensor:
    entries: list[tuple[int, int, float]] = []  # row, token, what is added
    for index, row in enumerate(rows):
        entries += [(index, token, bias) for token, bias in row.params.logit_bias.items()]
        entries += [(index, token, -math.inf) for token in row.banned]
    entries = [entry for entry in entries if entry[1] < logits.shape[1]]
    if not entries:
        return logits
    at, tokens, biases = (torch.tensor(x, device=logits.device) for x in zip(*entries, strict=True))
    return logits.index_put((at, tokens), biases.to(logits.dtype), accumulate=True)


# Candidates sorted to find a top-p cut; a row whose nucleus is wider is sorted whole.
_NUCLEUS_GUESS = 256


def _truncated(logits: Tensor, rows: Seq[Row]) -> Tensor:
    chosen = [index for index, row in enumerate(rows) if row.params.truncates]
    if not chosen:
        return logits
    device, size = logits.device, logits.shape[1]
    which = torch.tensor(chosen, device=device)
    part = logits.index_select(0, which)
    params = [rows[index].params for index in chosen]
    cut = torch.full((len(chosen), 1), -math.inf, device=device)  # keep what is not below
    if any(p.min_p > 0 for p in params):
        floor = [math.log(p.min_p) if p.min_p > 0 else -math.inf for p in params]
        top = part.amax(1, keepdim=True)
        cut = torch.maximum(cut, top + torch.tensor(floor, device=device)[:, None])
    if any(p.top_k > 0 for p in params):
        limits = [min(p.top_k, size) if p.top_k else size for p in params]
        widest = max((limit for limit in limits if limit < size), default=1)
        best = part.topk(widest, dim=1).values
        places = torch.tensor([min(limit, widest) - 1 for limit in limits], device=device)
        kth = best.gather(1, places[:, None])
        unlimited = torch.tensor([limit == size for limit in limits], device=device)[:, None]
        cut = torch.maximum(cut, kth.masked_fill(unlimited, -math.inf))
    part = part.masked_fill(part < cut, -math.inf)
    if any(p.top_p < 1 for p in params):
        mass = torch.tensor([p.top_p for p in params], device=device)[:, None]
        part = part.masked_fill(part < _nucleus_cut(part, mass), -math.inf)
    return logits.index_copy(0, which, part)


def _nucleus_cut(logits: Tensor, mass: Tensor) -> Tensor:
    """(R, 1): the smallest logit among the fewest tokens that together hold `mass`."""
    guess = min(_NUCLEUS_GUESS, logits.shape[1])
    best = logits.topk(guess, dim=1).values
    top = best[:, :1]
    wanted = _whole_weights(logits, top).sum(1, keepdim=True) * mass
    before = _whole_weights(best, top).cumsum(1)  # of the first 1, 2, 3 … tokens
    if guess < logits.shape[1] and bool(((before[:, -1:] < wanted) & (mass < 1)).any()):
        best = logits.sort(dim=1, descending=True).values
        before = _whole_weights(best, top).cumsum(1)
    # The last token kept is the first whose running weight reaches what is wanted.
    last = (before < wanted).sum(1, keepdim=True).clamp_(max=best.shape[1] - 1)
    return best.gather(1, last).masked_fill(mass >= 1, -math.inf)


def _whole_weights(logits: Tensor, top: Tensor) -> Tensor:
    """Probabilities as whole numbers, 2**34 for the likeliest token. In float64 their sums are
    exact, so in any order the same: libraries sum one row in another order than several."""
    return (logits - top).exp_().double().mul_(2.0**34).round_()


def draw(
    processed: Tensor, rows: Seq[Row], stream: Stream = Stream.TOKEN, ids: Tensor | None = None
) -> Tensor:
    """(R, V) → (R,): each row's column, by its own noise.

    ids (V,) int32: the token ids of the columns, where they are not 0, 1, 2 … Noise is a token's.
    """
    hot = _hot(rows)
    if not hot:
        return likeliest(processed)
    if not can_draw(processed):
        noise = row_noise(rows, processed.shape[1], processed.device, stream, ids)
        return likeliest(processed if noise is None else processed + noise)
    columns = dict(zip(hot, draw_rows(processed, hot, _keys(rows, hot, stream), ids), strict=True))
    for index in range(len(rows)):
        if index not in columns:
            columns[index] = int(likeliest(processed[index : index + 1]))
    return torch.tensor([columns[index] for index in range(len(rows))])


class Drawn(NamedTuple):
    columns: Tensor  # (R,)
    margins: list[float] | None = None  # how far each score is above the second


def draw_surely(
    processed: Tensor, rows: Seq[Row], stream: Stream = Stream.TOKEN, ids: Tensor | None = None
) -> Drawn:
    """`draw`, and how sure it is."""
    if can_draw(processed):
        keys = [
            noise_key(row.sequence.seed, row.position, stream) if row.params.temperature else None
            for row in rows
        ]
        columns, margins = native_draws.draw_surely(processed, keys, ids)
        return Drawn(torch.tensor(columns), margins)
    noise = row_noise(rows, processed.shape[1], processed.device, stream, ids)
    scores = processed if noise is None else processed + noise
    best = scores.topk(min(2, scores.shape[1]), dim=1).values
    above = (best[:, 0] - best[:, -1]).nan_to_num_(0.0)  # of two infinities
    return Drawn(likeliest(scores), above.tolist())


def _hot(rows: Seq[Row]) -> list[int]:
    return [index for index, row in enumerate(rows) if row.params.temperature > 0]


def _keys(rows: Seq[Row], hot: Seq[int], stream: Stream) -> list[int]:
    return [noise_key(rows[i].sequence.seed, rows[i].position, stream) for i in hot]


def likeliest(scores: Tensor) -> Tensor:
    """(R, V) → (R,): the place of each row's highest score, the first of equal ones."""
    if scores.device.type == "cpu":
        # torch would wake a second thread, which then takes the core of the next step's.
        return torch.from_numpy(scores.numpy().argmax(1))
    return scores.argmax(1)


def row_noise(
    rows: Seq[Row],
    size: int,
    device: torch.device,
    stream: Stream = Stream.TOKEN,
    ids: Tensor | None = None,
) -> Tensor | None:
    """(R, V), zero for rows at temperature 0; None when all are."""
    hot = _hot(rows)
    if not hot:
        return None
    noise = gumbel_noise(_keys(rows, hot, stream), size, device, ids)
    if len(hot) == len(rows):
        return noise
    full = torch.zeros(len(rows), size, device=device)
    return full.index_copy_(0, torch.tensor(hot, device=device), noise)


def probabilities(processed: Tensor, rows: Seq[Row]) -> Tensor:
    """(R, V): the distribution of each row; one token has all of it at temperature 0."""
    cold = [index for index, row in enumerate(rows) if row.params.temperature == 0]
    result = processed.softmax(1)
    if cold:
        which = torch.tensor(cold, device=processed.device)
        sure = torch.zeros_like(result[: len(cold)])
        sure.scatter_(1, processed.index_select(0, which).argmax(1, keepdim=True), 1.0)
        result = result.index_copy(0, which, sure)
    return result
