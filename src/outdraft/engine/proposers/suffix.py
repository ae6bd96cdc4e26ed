"""Suffix matching over this text and earlier ones; longer matches give longer drafts.

A suffix automaton finds, in constant time per token, the longest ending of the text that
occurred before, in the text itself or in what earlier requests wrote. From there the most
frequent continuation is followed while its probability, by those counts, stays high enough.

Requests with a draft length of their own have a memory of their own: a comparison of draft lengths
sends the same prompts with each, and one must not copy the texts of another.
"""

from collections import deque
from collections.abc import Iterable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

from outdraft.engine.proposers.proposer import DraftRequest, Proposal
from outdraft.engine.sequence import Sequence

_ROOT = 0
# Counts are raised on this many of a new ending's suffixes, longest first: a text of one
# repeated token has as many suffixes as tokens, and the short ones are rarely decisive.
_COUNTED_SUFFIXES = 32


class SuffixAutomaton:
    """All substrings of the texts fed to it, with how often each occurred."""

    def __init__(self) -> None:
        self._next: list[dict[int, int]] = [{}]
        self._link = [-1]
        self._length = [0]
        self._count = [0]
        self._last = _ROOT

    def __len__(self) -> int:
        return len(self._next)

    def extend(self, token: int) -> None:
        """Appends one token to the text being fed."""
        state = self._next[self._last].get(token)
        if state is not None and self._length[state] == self._length[self._last] + 1:
            self._last = state  # an earlier text began the same way
        elif state is not None:
            self._last = self._clone(self._last, token, state)
        else:
            self._last = self._append(token)
        state, steps = self._last, 0
        while state != _ROOT and steps < _COUNTED_SUFFIXES:
            self._count[state] += 1
            state, steps = self._link[state], steps + 1

    def feed(self, text: Iterable[int]) -> None:
        """Appends a whole text; the next token begins a new one."""
        for token in text:
            self.extend(token)
        self._last = _ROOT

    def ending(self) -> tuple[int, int]:
        """(state, length) of the longest ending of the present text that occurred before."""
        state = self._link[self._last] if self._last != _ROOT else _ROOT
        return state, self._length[state]

    def advance(self, state: int, length: int, token: int) -> tuple[int, int]:
        """The longest known ending after `token`, given the one before it."""
        # States may have been split since: the link leads to the shorter part.
        while state != _ROOT and length <= self._length[self._link[state]]:
            state = self._link[state]
        while state != _ROOT and token not in self._next[state]:
            state = self._link[state]
            length = self._length[state]
        following = self._next[state].get(token)
        return (_ROOT, 0) if following is None else (following, length + 1)

    def continuation(self, state: int, limit: int, min_probability: float) -> list[int]:
        """The most frequent tokens after `state`, while their joint probability holds."""
        tokens: list[int] = []
        probability = 1.0
        while len(tokens) < limit and self._next[state]:
            counts = self._count
            options = self._next[state]
            total = sum(counts[option] for option in options.values())
            token, following = max(options.items(), key=lambda item: counts[item[1]])
            probability *= counts[following] / max(total, 1)
            if probability < min_probability:
                break
            tokens.append(token)
            state = following
        return tokens

    def _new_state(self, length: int, transitions: dict[int, int], link: int, count: int) -> int:
        self._next.append(transitions)
        self._length.append(length)
        self._link.append(link)
        self._count.append(count)
        return len(self._next) - 1

    def _append(self, token: int) -> int:
        new = self._new_state(self._length[self._last] + 1, {}, _ROOT, 0)
        state = self._last
        while state != -1 and token not in self._next[state]:
            self._next[state][token] = new
            state = self._link[state]
        if state != -1:
            following = self._next[state][token]
            if self._length[following] == self._length[state] + 1:
                self._link[new] = following
            else:
                self._link[new] = self._clone(state, token, following)
        return new

    def _clone(self, state: int, token: int, following: int) -> int:
        """Splits `following`: its shorter strings, reached from `state`, get their own state."""
        clone = self._new_state(
            self._length[state] + 1,
            dict(self._next[following]),
            self._link[following],
            self._count[following],
        )
        self._link[following] = clone
        while state != -1 and self._next[state].get(token) == following:
            self._next[state][token] = clone
            state = self._link[state]
        return clone


@dataclass(slots=True)
class _Reading:
    """One running sequence."""

    own: SuffixAutomaton = field(default_factory=SuffixAutomaton)
    num_read: int = 0
    shared: tuple[int, int] = (_ROOT, 0)  # its ending in the earlier texts
    generation: int = 0  # of the memory that `shared` belongs to


@dataclass(slots=True)
class _Memory:
    """What earlier requests wrote."""

    automaton: SuffixAutomaton = field(default_factory=SuffixAutomaton)
    texts: deque[list[int]] = field(default_factory=deque)
    generation: int = 0  # states of an earlier generation are not valid any more

    def add(self, text: list[int]) -> None:
        self.texts.append(text)
        self.automaton.feed(text)

    def keep(self, num_texts: int) -> None:
        """Only the newest so many."""
        while len(self.texts) > num_texts:
            self.texts.popleft()
        self.automaton = SuffixAutomaton()
        for text in self.texts:
            self.automaton.feed(text)
        self.generation += 1

    def walk(self, place: tuple[int, int], tokens: Iterable[int]) -> tuple[int, int]:
        for token in tokens:
            place = self.automaton.advance(*place, token)
        return place


class SuffixProposer:
    def __init__(
        self,
        *,
        min_probability: float = 0.3,
        tokens_per_match: float = 2.0,
        min_match: int = 2,
        max_states: int = 400_000,
    ) -> None:
        self._min_probability = min_probability
        self._tokens_per_match = tokens_per_match  # draft length ≤ this × match length
        self._min_match = min_match
        self._max_states = max_states
        self._readings: dict[int, _Reading] = {}
        self._memories: dict[int | None, _Memory] = {}  # by the requests' own draft length

    def propose(self, requests: Seq[DraftRequest]) -> list[Proposal]:
        return [self._draft(each.sequence, each.k) for each in requests]

    def release(self, sequence: Sequence) -> None:
        self._readings.pop(sequence.id, None)
        if sequence.num_output_tokens > self._min_match:
            self._memory(sequence).add(sequence.output)
            self._make_room()

    def forget(self) -> None:
        for memory in self._memories.values():
            memory.keep(0)

    def _draft(self, sequence: Sequence, k: int) -> Proposal:
        reading = self._readings.get(sequence.id)
        if reading is None:  # an automaton is not made in vain
            reading = self._readings[sequence.id] = _Reading()
        memory = self._memory(sequence)
        self._read(reading, memory, sequence.tokens)
        own_state, own_length = reading.own.ending()
        state, length = reading.shared
        if own_length >= length:
            source, state, length = reading.own, own_state, own_length
        else:
            source = memory.automaton
        if length < self._min_match:
            return Proposal([])
        limit = min(k, round(length * self._tokens_per_match))
        return Proposal(source.continuation(state, limit, self._min_probability), match=length)

    def _memory(self, sequence: Sequence) -> _Memory:
        memory = self._memories.get(sequence.max_draft_tokens)
        if memory is None:
            memory = self._memories[sequence.max_draft_tokens] = _Memory()
        return memory

    def _read(self, reading: _Reading, memory: _Memory, tokens: list[int]) -> None:
        if reading.generation != memory.generation:
            reading.shared = memory.walk((_ROOT, 0), tokens[-64 : reading.num_read])
            reading.generation = memory.generation
        new = tokens[reading.num_read :]
        for token in new:
            reading.own.extend(token)
        reading.shared = memory.walk(reading.shared, new)
        reading.num_read = len(tokens)

    def _make_room(self) -> None:
        """Drops the older half of the largest memory: recent texts are the most useful."""
        while sum(len(each.automaton) for each in self._memories.values()) > self._max_states:
            largest = max(self._memories.values(), key=lambda each: len(each.automaton))
            largest.keep(len(largest.texts) // 2)
