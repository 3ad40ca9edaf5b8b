"""Numbers of a run that the experiment notebooks put side by side: room, capacity, rows held, latency by length."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from blockserve.core import ConfigError, check_int
from blockserve.tracing import Trace
from blockserve.tracing.metrics import goodput, latency, wall_seconds

if TYPE_CHECKING:
    import pandas as pd


def memory_of(trace: Trace, rows: int) -> int:
    """β of the memory that ``rows`` slots need to be safe, whoever sits in them: rows × (p + K·L) of the widest
    request, in tokens."""
    check_int("rows", rows, 1)
    length = trace.run.decode["block_length"]
    return rows * max(r.prompt_tokens + r.blocks * length for r in trace.request_records)


def capacity(trace: Trace) -> float:
    """Requests/s of a run with every request present from the start."""
    return len(trace.request_records) / wall_seconds(trace)


def admission(trace: Trace) -> dict[str, Any]:
    """How the memory was used: rows held (mean over cycles, most), share of the budget in use (mean, most; ``None``
    without a budget), preemptions, padding as a share of the boxes."""
    cycles = trace.cycle_records
    if not cycles:
        raise ConfigError("a trace without cycles does not say which rows were held; record it at level 'cycle'")
    used = [c.cost / c.budget for c in cycles if c.budget]
    return {
        "rows_mean": sum(c.batch for c in cycles) / len(cycles),
        "rows_most": max(c.batch for c in cycles),
        "budget_used_mean": sum(used) / len(used) if used else None,
        "budget_used_most": max(used, default=None),
        "preemptions": sum(len(c.preempted) for c in cycles),
        "padding_fraction": sum(c.padding for c in cycles) / sum(c.cost for c in cycles),
    }


def latency_by_thirds(traces: Mapping[str, Trace]) -> pd.DataFrame:
    """Median seconds in the batch and from arrival on, of the shortest, middle and longest third of the outputs.

    One line a trace; the thirds are those of the first trace's requests, so every line is about the same ones.
    """
    import pandas as pd

    first = latency(next(iter(traces.values()))).sort_values(["valid_tokens", "id"], kind="stable")
    ids = first["id"].tolist()
    cuts = [round(len(ids) * i / 3) for i in range(4)]
    thirds = {name: ids[a:b] for name, a, b in zip(("short", "middle", "long"), cuts, cuts[1:], strict=False)}
    lines = {}
    for name, trace in traces.items():
        lives = latency(trace).set_index("id")
        lines[name] = {
            f"{kind}_{third}_s": float(lives.loc[own, column].median())
            for kind, column in (("service", "service"), ("latency", "end_to_end"))
            for third, own in thirds.items()
        }
    return pd.DataFrame(lines).T


def sustained(runs: Mapping[float, Trace], limit: float, share: float = 0.95) -> float | None:
    """The highest arrival rate up to which ``share`` of the requests are answered within ``limit`` seconds; ``None``
    if that is so at no rate."""
    best = None
    for rate in sorted(runs):
        if in_time(runs[rate], limit) < share:
            break
        best = rate
    return best


def in_time(trace: Trace, limit: float) -> float:
    """Share of a run's requests that were answered within ``limit`` seconds of their arrival."""
    return goodput(trace, limit) * wall_seconds(trace) / len(trace.request_records)
