"""The engines that are up: which of them is awake, and which one goes when there is no room."""

from collections.abc import Callable, Collection

from outdraft.backends.backend import Sleep
from outdraft.errors import BackendError, CrowdedGpuError, OutdraftError
from outdraft.tune.engines import RunningEngine
from outdraft.tune.keeping import Keeping, room_for_one
from outdraft.tune.options import ASLEEP, VISITS

_SLEEP_S, _WAKE_S = 120.0, 300.0  # weights of a large model go to main memory and back


class EnginePool:
    def __init__(
        self,
        keeping: Keeping,
        sleep: Sleep | None,
        available_bytes: Callable[[], int | None],
        kept: Collection[str] = (),  # keys of engines that go last: others are compared with them
        card_of: Callable[[str], int] = lambda key: 0,  # `keeping.most` are up on each
        idle_path: str = "",  # refuses while requests run; asked before a sleep
    ) -> None:
        self._keeping = keeping
        self._held: dict[int, int] = {}  # by card: fewer than planned, as it has turned out
        self._sleep = sleep if keeping.how == ASLEEP else None
        self._available_bytes = available_bytes
        self._kept = kept
        self._card_of = card_of
        self._idle_path = idle_path
        self._engines: dict[str, RunningEngine] = {}  # the last used is the last
        self._asleep: set[str] = set()
        self._lost: dict[str, str] = {}  # engines that did not survive their sleep, and why

    def __contains__(self, key: str) -> bool:
        return key in self._engines

    def get(
        self,
        key: str,
        start: Callable[[], RunningEngine],
        woken: Callable[[RunningEngine], None],
    ) -> RunningEngine:
        """Up and awake, the only one that is. `woken` is called with one that was asleep: whether
        it is what it was before. OutdraftError where it could not be started or woken."""
        if key in self._engines and self._engines[key].died() is not None:
            if key in self._asleep:
                self._lose(key, f"it ended while it was asleep ({self._engines[key].died()})")
            else:
                self.drop(key)  # it ended while it was idle, which is no result of its arm
        if key in self._lost:
            raise BackendError(self._lost[key])
        for other in [each for each in self._engines if each != key]:
            self._put_to_sleep(other)
        if key not in self._engines:
            self._make_room(key)
            self._engines[key] = self._started(key, start)
        elif key in self._asleep:
            self._wake(key, woken)
        self._engines[key] = engine = self._engines.pop(key)
        return engine

    def drop(self, key: str) -> None:
        self._asleep.discard(key)
        if engine := self._engines.pop(key, None):
            engine.stop()

    def close(self) -> None:
        for key in list(self._engines):
            self.drop(key)

    def has_room(self, key: str) -> bool:
        """For an engine as large as the largest one that is up."""
        if not self._engines:
            return True
        most = self._held.get(self._card_of(key), self._keeping.most)
        if most is not None and len(self._beside(key)) >= most:
            return False
        largest = max(each.resident_bytes() for each in self._engines.values())
        free = self._available_bytes()
        return free is None or free >= room_for_one(self._keeping.each_bytes, largest)

    def _beside(self, key: str) -> list[str]:
        """Those on the same card."""
        return [each for each in self._engines if self._card_of(each) == self._card_of(key)]

    def _make_room(self, key: str) -> None:
        """The ones that were not used for longest go, of the same card first."""
        if self._keeping.how == VISITS:
            self.close()
        while not self.has_room(key):
            self._drop_one(self._beside(key) or list(self._engines))

    def _drop_one(self, up: list[str]) -> None:
        others = [each for each in up if each not in self._kept]
        self.drop((others or up)[0])

    def _started(self, key: str, start: Callable[[], RunningEngine]) -> RunningEngine:
        """Those that sleep may keep more than was planned, which is no failure of this one: one of
        them goes, and it is tried once more."""
        try:
            return start()
        except CrowdedGpuError:
            asleep = [each for each in self._beside(key) if each in self._asleep]
            if not asleep:
                raise
            self._held[self._card_of(key)] = len(self._beside(key))
            self._drop_one(asleep)
            return start()

    def _put_to_sleep(self, key: str) -> None:
        if self._sleep is None or key in self._asleep:
            return
        try:
            if self._idle_path:
                self._engines[key].forget(self._idle_path)
            self._engines[key].post(self._sleep.sleep_path, self._sleep.body, _SLEEP_S)
            self._asleep.add(key)
        except BackendError as error:
            self._lose(key, f"it did not fall asleep ({error})")

    def _wake(self, key: str, woken: Callable[[RunningEngine], None]) -> None:
        assert self._sleep is not None
        engine = self._engines[key]
        try:
            engine.post(self._sleep.wake_path, self._sleep.body, _WAKE_S)
            self._asleep.discard(key)
            woken(engine)
        except OutdraftError as error:
            self._lose(key, f"it did not wake up as it was ({error})")
            raise BackendError(self._lost[key]) from error

    def _lose(self, key: str, reason: str) -> None:
        self._lost[key] = reason
        self.drop(key)
