"""The requests of a closed loop, or sessions of them, handed out until their time is over."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from outdraft.loadgen.endpoint import Request


class Queue:
    """With `duration_ns`, requests that count are handed out for so long, from the first of them
    on. Those that are left then keep the slots busy as fillers, until the last one has ended."""

    def __init__(self, requests: Sequence[Request], duration_ns: int | None = None) -> None:
        self.size = len(requests)
        self._num_recorded = sum(len(each.turns) for each in requests if not each.is_filler)
        self.is_done = asyncio.Event()  # all that is recorded has ended
        self._waiting = iter(requests)
        self._duration_ns = duration_ns
        self._end_ns: int | None = None
        self._is_over = False
        self._num_taken = 0  # of those that are recorded
        self._num_ended = 0
        self._see_whether_done()

    def take(self, now_ns: int) -> Request | None:
        """The next one to send now; None: there are no more."""
        request = next(self._waiting, None)
        if request is None or self.is_done.is_set():
            return None
        if request.is_filler:
            return request
        if self._is_over or (not request.is_warmup and self._time_is_over(now_ns)):
            return None if self.is_done.is_set() else replace(request, is_filler=True)
        self._num_taken += len(request.turns)
        return request

    @property
    def num_planned(self) -> int:
        """Of those that are recorded; with a duration nobody knows how many it will be."""
        return self._num_recorded if self._duration_ns is None else self._num_taken

    def end_one(self) -> None:
        """One that is recorded has ended."""
        self._num_ended += 1
        self._see_whether_done()

    def _time_is_over(self, now_ns: int) -> bool:
        if self._duration_ns is None:
            return False
        if self._end_ns is None:
            self._end_ns = now_ns + self._duration_ns
        if now_ns >= self._end_ns:
            self._is_over = True
            self._num_recorded = self._num_taken
            self._see_whether_done()
        return self._is_over

    def _see_whether_done(self) -> None:
        if self._num_ended >= self._num_recorded:
            self.is_done.set()
