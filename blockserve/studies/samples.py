"""Sample traces that come with the package: something to look at without a model, a GPU or torch.

``python -m blockserve.studies.samples`` records them anew, for maintainers; the simulated one then comes out the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING

from blockserve.core import check_choice

if TYPE_CHECKING:
    from blockserve.tracing import Trace

FOLDER = "_samples"  # in the package


@dataclass(frozen=True)
class Sample:
    """``about``: what it shows, in one line. ``record``: makes the trace."""

    about: str
    record: Callable[[], Trace]


def sample_trace(name: str = "arithmetic") -> Trace:
    """A packaged trace.

    ``arithmetic``: tiny-llada on 16 word problems, for real, every token with its confidence; the budget is so tight
    that rows are preempted. ``gsm8k``: LLaDA-8B on an H200, simulated, 200 requests with GSM8K's lengths.
    """
    from blockserve.tracing import Trace

    check_choice("sample trace", name, SAMPLES)
    with as_file(files("blockserve") / FOLDER / f"{name}.parquet") as path:
        return Trace.load(path)


def record_samples(folder: str | Path) -> list[Path]:
    """Record every sample anew into ``folder``; returns the files. Needs torch."""
    return [s.record().save(Path(folder) / f"{name}.parquet", force=True) for name, s in SAMPLES.items()]


def _arithmetic() -> Trace:
    from blockserve.engine import Engine
    from blockserve.workload.sources import Workload

    engine = Engine("tiny-llada", "blockserve-budget", token_budget=500, trace_level="token", seed=0)
    engine.run(Workload.tasks("arithmetic", n=4, seed=1))  # the first passes of a process are slow
    return engine.run(Workload.tasks("arithmetic", n=16, seed=0)).trace


def _gsm8k() -> Trace:
    from blockserve.simulation.benchmarks import benchmark_profile
    from blockserve.simulation.catalogue import CALIBRATED
    from blockserve.simulation.profile import StepDistribution
    from blockserve.studies.simulate import simulate

    # The calibration knows a block's mean steps only; the spread is ours, so that rows differ as real ones do.
    steps = StepDistribution(CALIBRATED["llada-8b"].steps, 3.0)
    return simulate(benchmark_profile("gsm8k", 200, steps=steps), token_budget=16_384).trace


SAMPLES: Mapping[str, Sample] = {
    "arithmetic": Sample("tiny-llada, 16 word problems, recorded, level token", _arithmetic),
    "gsm8k": Sample("LLaDA-8B on H200, 200 requests of GSM8K's lengths, simulated", _gsm8k),
}

if __name__ == "__main__":
    with as_file(files("blockserve") / FOLDER) as home:
        for written in record_samples(home):
            print(f"{written} ({written.stat().st_size / 1000:.0f} kB)")
