"""When requests arrive: processes with a stated rate, each a value with ``times(n, seed)``.

A generator keeps its stated rate: gaps are never clipped (a test measures every one over 100,000 draws).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np

from blockserve.core import ConfigError, check_choice, check_int, check_number


@dataclass(frozen=True)
class Poisson:
    """Independent arrivals at ``rate`` requests/s: exponential gaps of mean 1/rate, CV 1."""

    kind: ClassVar[str] = "poisson"
    rate: float

    def __post_init__(self) -> None:
        check_number("rate", self.rate, 0.0, open_low=True)

    def times(self, n: int, seed: int = 0) -> np.ndarray:
        """The first ``n`` arrival times [s], ascending, from 0 on: float64 [n]."""
        return np.random.default_rng(seed).exponential(1 / self.rate, n).cumsum()


@dataclass(frozen=True)
class Gamma:
    """Gamma gaps of mean 1/``rate`` and coefficient of variation ``cv``: above 1 burstier than Poisson."""

    kind: ClassVar[str] = "gamma"
    rate: float
    cv: float = 2.0

    def __post_init__(self) -> None:
        check_number("rate", self.rate, 0.0, open_low=True)
        check_number("cv", self.cv, 0.0, open_low=True)

    def times(self, n: int, seed: int = 0) -> np.ndarray:
        """As `Poisson.times`."""
        shape = self.cv**-2
        return np.random.default_rng(seed).gamma(shape, 1 / (self.rate * shape), n).cumsum()


@dataclass(frozen=True)
class Uniform:
    """One request every 1/``rate`` seconds, CV 0."""

    kind: ClassVar[str] = "uniform"
    rate: float

    def __post_init__(self) -> None:
        check_number("rate", self.rate, 0.0, open_low=True)

    def times(self, n: int, seed: int = 0) -> np.ndarray:
        """As `Poisson.times`; the seed changes nothing."""
        return np.arange(1, n + 1) / self.rate


@dataclass(frozen=True)
class Bursts:
    """``size`` requests at once; the bursts come as a Poisson process, so that the mean rate is ``rate`` requests/s."""

    kind: ClassVar[str] = "bursts"
    rate: float
    size: int = 8

    def __post_init__(self) -> None:
        check_number("rate", self.rate, 0.0, open_low=True)
        check_int("size", self.size, 1)

    def times(self, n: int, seed: int = 0) -> np.ndarray:
        """As `Poisson.times`."""
        bursts = Poisson(self.rate / self.size).times(-(-n // self.size), seed)
        return bursts.repeat(self.size)[:n]


@dataclass(frozen=True)
class ClosedLoop:
    """``clients`` clients: each sends its next request ``think`` seconds after it has its answer."""

    kind: ClassVar[str] = "closed"
    clients: int
    think: float = 0.0

    def __post_init__(self) -> None:
        check_int("clients", self.clients, 1)
        check_number("think", self.think, 0.0)


Arrivals = Poisson | Gamma | Uniform | Bursts | ClosedLoop
ARRIVALS: Mapping[str, type] = {c.kind: c for c in (Poisson, Gamma, Uniform, Bursts, ClosedLoop)}


def parse_arrivals(text: str) -> Arrivals:
    """``poisson:3``, ``gamma:3,cv=2``, ``uniform:3``, ``bursts:3,size=8``, ``closed:4,think=0.5``: the first number is
    the rate in requests/s, or the number of clients."""
    kind, _, rest = text.partition(":")
    check_choice("arrival process", kind, ARRIVALS)
    cls = ARRIVALS[kind]
    known = {f.name: f.type for f in fields(cls)}
    first = next(iter(known))
    values: dict[str, Any] = {}
    for place, part in enumerate(rest.split(",")):
        name, equals, value = part.partition("=")
        name, value = (name.strip(), value) if equals else (first if place == 0 else "", part)
        if name not in known:
            raise ConfigError(f"arrivals {text!r}: {part!r} is not understood; write {kind}:NUMBER or {_usage(cls)}")
        try:
            values[name] = int(value) if known[name] == "int" else float(value)
        except ValueError:
            raise ConfigError(f"arrivals {text!r}: {name} must be a number, got {value!r}") from None
    return cls(**values)


def _usage(cls: type) -> str:
    return f"{cls.kind}:" + ",".join(f"{f.name}=…" for f in fields(cls))


def open_times(text: str, n: int, seed: int = 0) -> np.ndarray:
    """Arrival times of an open process by its text: float64 [n]. A closed loop has none before it runs."""
    process = parse_arrivals(text)
    if isinstance(process, ClosedLoop):
        raise ConfigError(f"arrivals {text!r}: a closed loop depends on the answers; use an open process here")
    return process.times(n, seed)
