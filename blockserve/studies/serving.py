"""Numbers of a run that the experiment notebooks put side by side: room, capacity, rows held, latency by length."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from blockserve.core import ConfigError
from blockserve.studies.results import interval
from blockserve.tracing import Trace
from blockserve.tracing.metrics import goodput, latency, latency_quantiles, wall_seconds

if TYPE_CHECKING:
    import pandas as pd


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
    """Median seconds in the batch and from arrival on, of the shortest, middle and longest third of the outputs;
    ``service_long_over_short``: how many times as long as the shortest third the longest stays in the batch.

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
        lines[name]["service_long_over_short"] = lines[name]["service_long_s"] / lines[name]["service_short_s"]
    return pd.DataFrame(lines).T


def answer_times(traces: Mapping[Any, Trace], limit: float) -> pd.DataFrame:
    """How quickly requests that arrive over time were answered, one line a trace: ``goodput`` (requests/s within
    ``limit`` seconds), ``in_time`` (their share), ``p50`` and ``p99`` of the seconds from arrival to answer."""
    import pandas as pd

    lines = []
    for trace in traces.values():
        seconds = latency_quantiles(trace).loc["end_to_end"]
        line = {"goodput": goodput(trace, limit), "in_time": in_time(trace, limit)}
        lines.append(line | {"p50": float(seconds["p50"]), "p99": float(seconds["p99"])})
    return pd.DataFrame(lines, index=pd.Index(list(traces)))


def over_repeats(
    numbers: Callable[[Mapping[Any, Trace]], pd.DataFrame], rounds: Iterable[Mapping[Any, Trace]]
) -> pd.DataFrame:
    """``numbers`` of the runs of every round (see `experiment.rounds`), each cell as its mean and 95% `Interval`."""
    import pandas as pd

    tables = [numbers(traces) for traces in rounds]
    rows, columns = tables[0].shape
    cells = [[interval([float(t.iat[r, c]) for t in tables]) for c in range(columns)] for r in range(rows)]
    return pd.DataFrame(cells, index=tables[0].index, columns=tables[0].columns, dtype=object)


def sustained(shares: Mapping[float, float], least: float = 0.95) -> float | None:
    """The highest arrival rate up to which at least that share of the requests is answered in time; ``None`` if that
    is so at no rate. ``shares``: by arrival rate."""
    best = None
    for rate in sorted(shares):
        if shares[rate] < least:
            break
        best = rate
    return best


def in_time(trace: Trace, limit: float) -> float:
    """Share of a run's requests that were answered within ``limit`` seconds of their arrival."""
    return goodput(trace, limit) * wall_seconds(trace) / len(trace.request_records)
