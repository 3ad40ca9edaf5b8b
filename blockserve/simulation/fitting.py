"""`fit_cost`: a cost model fitted to the recorded cycles of one model on one machine.

Each phase of a cycle is a non-negative combination of what it should depend on: a pass costs something, a row costs
something, and so do a forwarded cell and a (query, key) pair of attention.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from blockserve.core import BlockServeError
from blockserve.simulation.cost import CycleWork
from blockserve.tracing import Trace
from blockserve.tracing.records import CycleRecord

MIN_CYCLES = 4  # as many as a phase has features
OUTLIER = 6.0  # times the median residual


class FitError(BlockServeError):
    """A trace that no cost model can be fitted to."""


# What each phase depends on. ``reuse`` = row passes after the first.
FEATURES: dict[str, Callable[[CycleWork], tuple[float, ...]]] = {
    "schedule": lambda w: (1.0,),
    "layout": lambda w: (1.0, w.rows * w.width),
    "refresh": lambda w: (1.0, w.rows, w.rows * w.width, w.rows * w.width**2),
    "denoise": lambda w: _denoise(len(w.reuse_rows), sum(w.reuse_rows), w.reuse_width, w.width),
    "commit": lambda w: (1.0 + len(w.reuse_rows), w.rows + sum(w.reuse_rows)),
}


def _denoise(passes: int, row_passes: int, cells: int, width: int) -> tuple[float, ...]:
    return passes, row_passes, row_passes * cells, row_passes * cells * width


@dataclass(frozen=True)
class FittedCost:
    """Seconds by phase as fitted to ``cycles`` cycles of one model, machine and head.

    ``coefficients``: per phase, of `FEATURES`. ``residuals``: per phase, measured minus predicted seconds of every
    cycle; ``measured``: whole seconds of every cycle.
    """

    name: str
    coefficients: Mapping[str, tuple[float, ...]]
    residuals: Mapping[str, tuple[float, ...]]
    measured: tuple[float, ...]

    @property
    def cycles(self) -> int:
        return len(self.measured)

    @property
    def median_error(self) -> float:
        """Median over cycles of |measured - predicted| ÷ measured."""
        off = np.abs(np.sum([self.residuals[phase] for phase in self.residuals], axis=0))
        return float(np.median(off / np.maximum(self.measured, 1e-12)))

    def cycle(self, work: CycleWork) -> dict[str, float]:
        return {phase: _dot(own, FEATURES[phase](work)) for phase, own in self.coefficients.items()}


def fit_cost(trace: Trace) -> FittedCost:
    """Fit to a recorded run. Raises `FitError` for too few cycles or seconds that are not finite numbers.

    ``schedule`` takes in what a run spends between cycles. The model holds for the recorded model, device and head.
    """
    cycles = trace.cycle_records
    if trace.run is None or len(cycles) < MIN_CYCLES:
        raise FitError(
            f"a cost fit needs a run record and at least {MIN_CYCLES} recorded cycles, this trace has {len(cycles)}; "
            "record a longer run, or give a cost model"
        )
    works = [_work(cycle, trace.run.decode["block_length"]) for cycle in cycles]
    coefficients, residuals = {}, {}
    for phase, features in FEATURES.items():
        measured = _between(cycles) if phase == "schedule" else _seconds(cycles, phase)
        columns = np.array([features(work) for work in works], float)
        found = _fit_without_outliers(columns, measured)
        coefficients[phase] = tuple(found.tolist())
        residuals[phase] = tuple((measured - columns @ found).tolist())
    whole = sum(_seconds(cycles, phase) for phase in FEATURES if phase != "schedule") + _between(cycles)
    name = f"fitted to {len(cycles)} cycles of {trace.run.model.get('name')} on {trace.run.device}"
    return FittedCost(name, coefficients, residuals, tuple(np.asarray(whole).tolist()))


def _work(cycle: CycleRecord, block_length: int) -> CycleWork:
    """The passes of a recorded cycle; how its rows spread over the reuse passes does not matter here."""
    left = cycle.row_passes - cycle.batch
    reuse = [left, *[0] * (cycle.reuse_passes - 1)] if cycle.reuse_passes else []
    return CycleWork(cycle.batch, cycle.box_width, block_length, reuse, cycle.reuse_width)


def _seconds(cycles: list[CycleRecord], phase: str) -> NDArray[np.float64]:
    """Recorded seconds of one phase in every cycle."""
    found = np.array([cycle.seconds.get(phase, 0.0) for cycle in cycles], float)
    bad = ~np.isfinite(found) | (found < 0)
    if bad.any():
        i = int(bad.argmax())
        raise FitError(
            f"cycle {cycles[i].index} of this trace records {phase} = {found[i]} s; a cost fit needs finite seconds, "
            "not negative"
        )
    return found


def _between(cycles: list[CycleRecord]) -> NDArray[np.float64]:
    """Seconds from the end of a cycle's work to the start of the next: scheduling, recording, the caller's own.

    Where the queue ran empty the run was waiting for an arrival, so the median stands for every cycle.
    """
    starts = np.array([c.start for c in cycles], float)
    work = sum(_seconds(cycles, phase) for phase in FEATURES if phase != "schedule")
    if not np.isfinite(starts).all():
        raise FitError("this trace holds a cycle whose start is not a finite number; a cost fit needs finite seconds")
    gaps = np.diff(starts) - work[:-1]
    return np.full(len(cycles), max(float(np.median(gaps)), 0.0))


def _fit_without_outliers(columns: NDArray[np.float64], measured: NDArray[np.float64]) -> NDArray[np.float64]:
    """A fit, and another without the cycles that are far off it: a first cycle warms up, another process cuts in."""
    first = nonnegative_fit(columns, measured)
    off = np.abs(measured - columns @ first)
    usual = off <= OUTLIER * max(float(np.median(off)), 1e-12)
    return nonnegative_fit(columns[usual], measured[usual]) if usual.sum() >= MIN_CYCLES else first


def nonnegative_fit(columns: NDArray[np.float64], measured: NDArray[np.float64]) -> NDArray[np.float64]:
    """Least squares with no negative coefficient: [n, k], [n] → [k]. Exact: k is small, so every subset is tried."""
    scale = np.abs(columns).max(axis=0)
    scale[scale == 0] = 1.0
    count = columns.shape[1]
    best, error = np.zeros(count), float(measured @ measured)
    for size in range(1, count + 1):
        for subset in map(list, combinations(range(count), size)):
            own = columns[:, subset] / scale[subset]
            found = np.linalg.lstsq(own, measured, rcond=None)[0]
            off = measured - own @ found
            if (found >= 0).all() and off @ off < error * (1 - 1e-12):
                best, error = np.zeros(count), float(off @ off)
                best[subset] = found / scale[subset]
    return best


def _dot(a: tuple[float, ...], b: tuple[float, ...]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))
