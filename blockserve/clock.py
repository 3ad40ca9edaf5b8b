"""Wall and virtual clock: seconds since the start of a run, behind one interface."""

from __future__ import annotations

import time
from typing import Protocol

from blockserve.core import check_choice


class Clock(Protocol):
    """What the engine needs of time: ``now()``, ``advance()`` after work, ``wait_until()`` when idle."""

    name: str

    def now(self) -> float: ...
    def advance(self, seconds: float) -> None: ...
    def exclude(self, seconds: float) -> None:
        """Leave out time that was no part of serving (grading an answer)."""
        ...

    def wait_until(self, when: float) -> None:
        """Come nearer to ``when`` [s]; may return before it."""
        ...


def make_clock(name: str) -> Clock:
    """A new ``wall`` or ``virtual`` clock, at 0."""
    check_choice("clock", name, CLOCKS)
    return CLOCKS[name]()


class WallClock:
    """Real time. Work takes its own time, so `advance` does nothing; `wait_until` sleeps, a slice at a time, so that
    whoever waits can look around (a stop, a cancellation) and wait again."""

    name = "wall"
    SLICE = 0.05  # s

    def __init__(self) -> None:
        self._start = time.perf_counter()

    def now(self) -> float:
        return time.perf_counter() - self._start

    def advance(self, seconds: float) -> None:
        pass

    def exclude(self, seconds: float) -> None:
        self._start += seconds

    def wait_until(self, when: float) -> None:
        time.sleep(min(max(0.0, when - self.now()), self.SLICE))


class VirtualClock:
    """Time that passes only by what the executor says its work took; runs repeat exactly."""

    name = "virtual"

    def __init__(self) -> None:
        self._now = 0.0

    def now(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += seconds

    def exclude(self, seconds: float) -> None:
        pass

    def wait_until(self, when: float) -> None:
        self._now = max(self._now, when)


CLOCKS: dict[str, type] = {clock.name: clock for clock in (WallClock, VirtualClock)}
