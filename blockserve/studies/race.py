"""Presets side by side on one workload: repeated, interleaved in one process, so that their ratio means something.

A machine's speed drifts with its temperature and its neighbours; runs that alternate see the same drift.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from blockserve.core import ConfigError, Request, check_int
from blockserve.engine import Engine, as_workload
from blockserve.tracing import Trace
from blockserve.tracing.metrics import WASTE_LABELS, summarize, wall_seconds, waste
from blockserve.workload.sources import Workload

if TYPE_CHECKING:
    import pandas as pd

WORK = ("cycles", "batch_passes", "row_passes", "row_tokens", "straggler_wait_steps", "preemptions", "accuracy")


@dataclass(frozen=True)
class Race:
    """What `race` measured. ``traces``: one per name (the schedule is the same in every repeat); ``walls``: seconds
    of every repeat."""

    traces: Mapping[str, Trace]
    walls: Mapping[str, Sequence[float]]

    @property
    def table(self) -> pd.DataFrame:
        """One column a name, the first one the reference: seconds (median, lowest, highest), ``speedup`` (the
        median over repeats of the reference's seconds ÷ its own), passes, row-tokens, and row-tokens by category."""
        import pandas as pd

        reference = next(iter(self.walls.values()))
        columns = {}
        for name, trace in self.traces.items():
            walls, numbers = self.walls[name], summarize(trace)
            column = {
                "wall_s (median)": median(walls),
                "wall_s (lowest)": min(walls),
                "wall_s (highest)": max(walls),
                "speedup": median(r / w for r, w in zip(reference, walls, strict=True)),
                "valid tokens/s": numbers["valid_tokens"] / median(walls),
            }
            column |= {key: numbers[key] for key in WORK}
            column |= {f"row-tokens: {WASTE_LABELS[k]}": v for k, v in waste(trace).items()}
            columns[name] = pd.Series(column, dtype=object)  # counts stay whole numbers
        return pd.DataFrame(columns)


def race(engines: Mapping[str, Engine], workload: Workload | Iterable[Request], *, repeats: int = 3) -> Race:
    """Run ``workload`` on every engine in turn, ``repeats`` times; one short run of each before, to warm up."""
    check_int("repeats", repeats, 1)
    if not engines:
        raise ConfigError("nothing to race; give at least one engine")
    workload = as_workload(workload)
    for engine in engines.values():
        engine.run(Workload("warm-up", workload.requests[:2]))
    traces: dict[str, Trace] = {}
    walls: dict[str, list[float]] = {name: [] for name in engines}
    for _ in range(repeats):
        for name, engine in engines.items():
            traces[name] = engine.run(workload).trace
            walls[name].append(wall_seconds(traces[name]))
    return Race(traces, walls)
