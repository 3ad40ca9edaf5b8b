"""A run in a thread: watch it, cancel one request, stop it, take its result."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING

from blockserve.tracing import Trace
from blockserve.tracing.records import CycleRecord

if TYPE_CHECKING:
    from blockserve.engine import Run
    from blockserve.session import Session


class RunHandle:
    """A session that runs in the background. Made by `Engine.start`.

    A running notebook cell blocks its kernel's widget messages; a handle leaves the kernel free, so a player that
    follows it can be paused and stopped.
    """

    def __init__(self, session: Session, collect: Callable[[], Run]) -> None:
        self._session, self._collect = session, collect
        self._listeners: list[Callable[[CycleRecord], None]] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="blockserve-run", daemon=True)
        self._thread.start()

    @property
    def trace(self) -> Trace:
        """The trace so far; it grows while the run goes on."""
        return self._session.trace

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def on_cycle(self, listener: Callable[[CycleRecord], None]) -> None:
        """Call ``listener(record)`` after every cycle, in the run's thread. What it raises ends the run."""
        self._listeners.append(listener)

    def cancel(self, request_id: str) -> bool:
        """Let one request leave at the next boundary, with what it has written; False if it has left already."""
        return self._session.cancel(request_id)

    def stop(self) -> Run:
        """End the run at the next boundary, keep what is done, and return it."""
        self._session.stop()
        return self.wait()

    def wait(self, timeout: float | None = None) -> Run:
        """Wait for the end, at most ``timeout`` seconds, and return the run; raises what the run raised."""
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise TimeoutError(f"the run is not done after {timeout} s; it goes on (stop() ends it)")
        if self._error is not None:
            raise self._error
        return self._collect()

    def _run(self) -> None:
        try:
            with closing(self._session.cycles()) as cycles:
                for record in cycles:
                    for listener in self._listeners:
                        listener(record)
        except BaseException as error:
            self._error = error
