"""Child processes that hear Ctrl-C, wherever the tests run."""

from __future__ import annotations

import signal


def hear_interrupts() -> None:
    """As ``preexec_fn`` of a child: a background job hands SIGINT down as ignored; a person's shell does not."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
