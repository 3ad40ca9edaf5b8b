"""A roofline calibrated on the paper: four numbers a model, fitted to its *Fixed* rows on GSM8K and HumanEval.

A run of the published system is predicted as ``Σ cycles [refresh + (steps - 1) · reuse]``, where a pass takes its
roofline time ÷ ``efficiency`` plus ``pass_overhead`` plus ``row_overhead`` a row. With every request present at the
start the schedule does not depend on the times, so for each whole number of steps the time is linear in the others,
and they follow by least squares of the relative errors.

Only the products steps · overhead show in these rows: from 2 to 18 steps the best fit's error moves by half a point.
So the pass overhead is not fitted but set to what launching an eager transformer of about 30 layers takes, some
twenty kernels a layer at 30 µs; steps, efficiency and row overhead are fitted beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blockserve.simulation.benchmarks import benchmark_lengths, published, scaled_outputs
from blockserve.simulation.catalogue import CALIBRATED_LENGTH, Calibration
from blockserve.simulation.cost import CycleWork
from blockserve.simulation.fitting import nonnegative_fit
from blockserve.simulation.profile import Profile
from blockserve.studies.simulate import simulate

MODELS = {"llada-8b": "LLaDA-8B-Instruct", "dream-7b": "Dream-v0-Instruct-7B"}
FITTED_ON = ("GSM8K", "HumanEval")
PASS_OVERHEAD = 0.02  # s; see above


def fixed_rows(model: str) -> list[dict[str, Any]]:
    """The published main rows of a model."""
    return [row for row in published()["main"] if row["model"] == MODELS[model]]


def mean_output(row: Mapping[str, Any]) -> float:
    """Mean valid tokens of a *Fixed* run: tokens a second · seconds ÷ problems."""
    fixed = row["blockserve_fixed"]
    return fixed["tps"] * fixed["time_s"] / published()["test_split_sizes"][row["dataset"]]


@cache
def outputs(dataset: str, limit: int, mean: float) -> NDArray[np.int32]:
    """Output lengths of a benchmark with the published mean, and the published maximum (LLaDA's)."""
    workload = next(w for w in published()["workloads"] if w["dataset"] == dataset)
    maximum = workload["outputs"].get(str(limit), [None, None])[1]
    references = benchmark_lengths(dataset.lower())[1]
    return scaled_outputs(references, min(mean, limit - 1), limit, maximum)


def paper_profile(
    dataset: str, limit: int, mean: float, calibration: Calibration, block_length: int = CALIBRATED_LENGTH
) -> Profile:
    """One of the paper's workloads, in the benchmark's order."""
    return Profile.synthetic(
        benchmark_lengths(dataset.lower())[0],
        outputs(dataset, limit, round(mean, 1)),
        limit,
        block_length=block_length,
        steps=calibration.steps_for(block_length),
        name=dataset,
    )


class _Boxes:
    """A cost model that only notes the boxes: rows and width of every cycle."""

    name = "boxes"

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.widths: list[int] = []

    def cycle(self, work: CycleWork) -> dict[str, float]:
        self.rows.append(work.rows)
        self.widths.append(work.width)
        return {"refresh": 1.0}


def fit_calibration(model: str) -> Calibration:
    """Least squares of predicted ÷ published - 1 over the *Fixed* rows of GSM8K and HumanEval."""
    rows = [row for row in fixed_rows(model) if row["dataset"] in FITTED_ON]
    seconds = np.array([row["blockserve_fixed"]["time_s"] for row in rows])
    terms = [_terms(model, row) for row in rows]
    best, error = None, np.inf
    for steps in range(2, CALIBRATED_LENGTH + 1):
        columns = np.array([t.columns(steps) for t in terms]) / seconds[:, None]
        rest = 1 - PASS_OVERHEAD * columns[:, 1]
        found = nonnegative_fit(columns[:, [0, 2]], rest)
        off = float(np.square(columns[:, [0, 2]] @ found - rest).sum())
        if off < error and found[0] >= 1:  # an efficiency above 1 is no fit
            best, error = Calibration(model, steps, float(1 / found[0]), PASS_OVERHEAD, float(found[1])), off
    assert best is not None
    return best


@dataclass(frozen=True)
class _Terms:
    """Sums over a run's cycles: roofline seconds of its refresh and of one reuse pass each, cycles, and rows."""

    refresh: float
    reuse: float
    cycles: int
    rows: int

    def columns(self, steps: int) -> tuple[float, float, float]:
        """What 1 ÷ efficiency, pass overhead and row overhead are multiplied by."""
        return self.refresh + (steps - 1) * self.reuse, steps * self.cycles, steps * self.rows


def _terms(model: str, row: Mapping[str, Any]) -> _Terms:
    """The schedule of one published run, as sums."""
    boxes = _Boxes()
    any_steps = Calibration(model, 8, 1.0, 0.0, 0.0)
    profile = paper_profile(row["dataset"], row["gen_limit"], mean_output(row), any_steps)
    simulate(profile, "blockserve-fixed", boxes, level="summary", slots=row["batch_size"])
    peak = any_steps.cost
    pairs = list(zip(boxes.rows, boxes.widths, strict=True))
    return _Terms(
        refresh=sum(peak.refresh_seconds(b, w, CALIBRATED_LENGTH) for b, w in pairs),
        reuse=sum(peak.reuse_seconds(b, CALIBRATED_LENGTH, w, CALIBRATED_LENGTH) for b, w in pairs),
        cycles=len(pairs),
        rows=sum(boxes.rows),
    )
