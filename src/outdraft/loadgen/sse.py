"""Parses server-sent events from bytes, however they are split. Does no I/O."""

from typing import NamedTuple

MAX_EVENT_BYTES = 4 << 20  # far above any answer: anything longer is no event stream
_BOM = b"\xef\xbb\xbf"


class Event(NamedTuple):
    data: bytes
    name: str = ""


class SseParser:
    """`feed` returns the events that became complete. As the standard says, an event without its
    empty line at the end of a stream does not count."""

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max = max_event_bytes
        self._line = bytearray()  # as far as it has come
        self._after_cr = False  # a line feed now still belongs to the line before
        self._is_first_line = True
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._name = ""
        self.overflowed = False  # a line or an event was too long; the rest is ignored

    def feed(self, data: bytes) -> list[Event]:
        if self._after_cr and data.startswith(b"\n"):
            data = data[1:]
            self._after_cr = False
        if not data or self.overflowed:
            return []
        if not self._line and not self._data and (events := self._whole_events(data)):
            self._after_cr = self._is_first_line = False
            return events
        self._after_cr = data.endswith(b"\r")
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        first, *others = data.split(b"\n")
        self._hold(first)
        events = []
        for part in others:  # a line ends where the next part begins
            line = bytes(self._line)
            self._line.clear()
            if not self.overflowed:
                self._end_line(line, events)
            self._hold(part)
        return events

    def _whole_events(self, data: bytes) -> list[Event]:
        """The usual case, in a third of the time: only whole events of one line each."""
        if self._name or not data.endswith(b"\n\n") or b"\r" in data:
            return []
        lines = data[:-2].split(b"\n\n")
        for line in lines:
            if not line.startswith(b"data: ") or b"\n" in line or len(line) > self._max:
                return []
        return [Event(line[6:]) for line in lines]

    def _hold(self, part: bytes) -> None:
        self._line += part
        self._check(len(self._line))

    def _end_line(self, line: bytes, events: list[Event]) -> None:
        if self._is_first_line:
            self._is_first_line = False
            line = line.removeprefix(_BOM)
        if not line:
            if self._data:
                events.append(Event(b"\n".join(self._data), self._name))
            self._data, self._data_bytes, self._name = [], 0, ""
            return
        field, _, value = line.partition(b":")  # a comment has an empty name
        if field == b"data":
            value = value.removeprefix(b" ")
            self._data.append(value)
            self._data_bytes += len(value)
            self._check(self._data_bytes)
        elif field == b"event":
            self._name = value.removeprefix(b" ").decode("utf-8", "replace")

    def _check(self, num_bytes: int) -> None:
        if num_bytes > self._max:
            self.overflowed = True
            self._line, self._data = bytearray(), []
