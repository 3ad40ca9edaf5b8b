"""Shared fixtures. One torch thread: the models are tiny, and spinning threads of two processes starve each other."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from statistics import fmean, pstdev

import pytest

from browser import browser  # noqa: F401  (a fixture)

_COUNTS: Counter[str] = Counter()
_SPREADS: dict[str, list[float]] = {}
_SHARES: defaultdict[tuple[str, str], Counter[bool]] = defaultdict(Counter)


def pytest_configure(config):
    try:
        import torch
    except ImportError:  # the engine is optional for those who only look at traces
        return
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def record_count():
    """``record_count(what, n=1)``: adds to a tally printed at the end of the run."""

    def add(what: str, number: int = 1) -> None:
        _COUNTS[what] += int(number)

    return add


@pytest.fixture(scope="session")
def record_share():
    """``record_share(of, what, yes)``: how often ``what`` was so among ``of``, printed as a share at the end."""

    def add(of: str, what: str, yes: bool) -> None:
        _SHARES[of, what][bool(yes)] += 1

    return add


@pytest.fixture(scope="session")
def record_spread():
    """``record_spread(what, values)``: mean and coefficient of variation of ``values``, printed at the end."""

    def add(what: str, values: Sequence[float]) -> None:
        _SPREADS[what] = list(values)

    return add


def pytest_terminal_summary(terminalreporter):
    if _COUNTS or _SHARES or _SPREADS:
        terminalreporter.section("checked")
        for what, number in sorted(_COUNTS.items()):
            terminalreporter.write_line(f"{number:>7,}  {what}")
        for (of, what), seen in _SHARES.items():
            terminalreporter.write_line(f"{seen[True] / seen.total():>7.1%}  of {seen.total():,} {of} {what}")
        for what, values in _SPREADS.items():
            mean, deviation = fmean(values), pstdev(values)
            spread = f"(CV {deviation / mean:.2f}, {min(values):g} to {max(values):g}, n = {len(values)})"
            terminalreporter.write_line(f"{mean:>7.2f}  {what} {spread}")
