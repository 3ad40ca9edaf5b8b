"""Metrics: pure functions of a trace. One definition of every number (README, glossary).

*Batch passes* and *row passes* are never mixed: a batch pass is one forward of the dense batch, a row pass is one
row taking part in one. *Row-tokens* are the cells forwarded: rows × width, summed over batch passes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from blockserve.core import TraceError, check_int, check_number
from blockserve.tracing.records import CompletionRecord, CycleRecord, RowRecord
from blockserve.tracing.trace import Trace

if TYPE_CHECKING:
    import pandas as pd

FINISHED_REASONS = ("eos", "stop", "length")
WASTE_CATEGORIES = ("valid", "after_eos", "uncommitted", "refresh", "suffix", "padding", "ended", "uncompacted")
WASTE_LABELS = {
    "valid": "valid commit",
    "after_eos": "committed at or after the end token",
    "uncommitted": "block cell not committed in this pass",
    "refresh": "prompt and finished cells re-run",
    "suffix": "masked suffix",
    "padding": "padding",
    "ended": "row that had ended",
    "uncompacted": "finished block not compacted",
}


def waste(trace: Trace) -> dict[str, int]:
    """Row-tokens of every pass, each in exactly one category; the values sum to the trace's row-tokens."""
    if trace.run is None:
        raise TraceError("this trace has no run record, so the block length and cache mode are unknown")
    block_length, cache = trace.run.decode["block_length"], trace.run.decode["cache"]
    total = dict.fromkeys(WASTE_CATEGORIES, 0)
    for cycle in trace.cycle_records:
        for row in cycle.rows:
            _add_row(total, cycle, row, block_length, cache)
    return total


def _add_row(total: dict[str, int], cycle: CycleRecord, row: RowRecord, block_length: int, cache: str) -> None:
    """Account for all passes of one row in one cycle."""
    piece = (1 + row.suffix_blocks) * block_length if cache == "prefix" else block_length
    for index in range(row.passes):
        full = index == 0 or cache == "none"
        own, width = (row.width, cycle.box_width) if full else (piece, cycle.reuse_width)
        total["padding"] += width - own
        if row.frozen:
            total["ended"] += own
        elif index >= row.steps:
            total["uncompacted"] += own
        else:
            context = row.prompt_tokens + row.block * block_length if full else 0
            total["refresh"] += context
            total["suffix"] += own - context - block_length
            total["valid"] += row.valid[index]
            total["after_eos"] += row.commits[index] - row.valid[index]
            total["uncommitted"] += block_length - row.commits[index]


def straggler_wait(trace: Trace) -> int:
    """Denoise steps that rows waited for slower rows of their cycle: Σ (slowest steps - own steps), unended rows."""
    wait = 0
    for cycle in trace.cycle_records:
        steps = [row.steps for row in cycle.rows if not row.frozen]
        wait += sum(max(steps) - s for s in steps) if steps else 0
    return wait


def unended_rows(trace: Trace) -> list[int]:
    """Per cycle, the rows whose valid output was not complete when the cycle began."""
    done: set[str] = set()
    counts = []
    for cycle in trace.cycle_records:
        counts.append(sum(not row.frozen and row.id not in done for row in cycle.rows))
        done.update(row.id for row in cycle.rows if row.ended is not None)
    return counts


def effective_compute_ratio(trace: Trace, baseline_slots: int = 8) -> float:
    """R: mean unended rows a cycle ÷ the baseline's batch size (paper, Eq. 2). 0 for a trace without cycles."""
    check_int("baseline_slots", baseline_slots, 1)
    counts = unended_rows(trace)
    return sum(counts) / len(counts) / baseline_slots if counts else 0.0


def wall_seconds(trace: Trace) -> float:
    """Duration of the run: its end record, or the end of its last cycle for a run that was cut off."""
    if trace.end is not None:
        return trace.end.wall
    last = trace.cycle_records[-1] if trace.cycle_records else None
    return last.start + last.duration if last else 0.0


def latency(trace: Trace) -> pd.DataFrame:
    """Per finished request, in seconds: ``queueing`` (arrival → first admission), ``first_block`` (arrival → first
    block finished), ``service`` (first admission → left the batch), ``end_to_end``; with ``valid_tokens``."""
    import pandas as pd

    names = ["id", "valid_tokens", "queueing", "first_block", "service", "end_to_end"]
    return pd.DataFrame([_latency(c) for c in _finished(trace)], columns=names)


def _finished(trace: Trace) -> list[CompletionRecord]:
    return [c for c in trace.completion_records if c.reason in FINISHED_REASONS]


def _latency(c: CompletionRecord) -> dict[str, Any]:
    return {
        "id": c.id,
        "valid_tokens": c.valid_tokens,
        "queueing": c.admitted - c.arrival,
        "first_block": c.first_block - c.arrival,
        "service": c.evicted - c.admitted,
        "end_to_end": c.evicted - c.arrival,
    }


LATENCIES = ("queueing", "first_block", "service", "end_to_end")


def latency_quantiles(trace: Trace, quantiles: tuple[float, ...] = (0.5, 0.95, 0.99)) -> pd.DataFrame:
    """Seconds: one line a kind of latency (as in `latency`), one column a quantile (``p50``, ``p95``, ``p99``)."""
    import pandas as pd

    lives = [_latency(c) for c in _finished(trace)]
    table = {kind: sorted(life[kind] for life in lives) for kind in LATENCIES}
    columns = {f"p{100 * q:g}": [quantile(values, q) for values in table.values()] for q in quantiles}
    return pd.DataFrame(columns, index=pd.Index(table, name="latency"))


def goodput(trace: Trace, limit: float) -> float:
    """Requests/s that finished within ``limit`` seconds of their arrival, over the duration of the run."""
    check_number("latency limit", limit, 0.0, open_low=True)
    wall = wall_seconds(trace)
    return sum(c.evicted - c.arrival <= limit for c in _finished(trace)) / wall if wall else 0.0


def summarize(trace: Trace, baseline_slots: int = 8) -> dict[str, Any]:
    """The headline numbers of a run.

    ``tokens_per_s``: valid tokens ÷ wall seconds; ``padding_fraction``: padding ÷ cost, over all boxes;
    ``tokens_per_row_pass`` (TPF): committed tokens a row pass; ``accuracy``: correct ÷ graded requests, ``None``
    if none is graded. A trace without cycles gives zeros.
    """
    cycles, completions, run = trace.cycle_records, trace.completion_records, trace.run
    wall, valid = wall_seconds(trace), sum(c.valid_tokens for c in completions)
    cost, row_passes = sum(c.cost for c in cycles), sum(c.row_passes for c in cycles)
    graded = [c.correct for c in completions if c.correct is not None]
    committed = sum(sum(row.commits) for c in cycles for row in c.rows)
    waits = sorted(c.evicted - c.arrival for c in _finished(trace))
    return {
        "preset": run.preset if run else "",
        "requests": len(trace.request_records),
        "finished": len(_finished(trace)),
        "accuracy": sum(graded) / len(graded) if graded else None,
        "valid_tokens": valid,
        "wall_s": wall,
        "tokens_per_s": valid / wall if wall else 0.0,
        "latency_p50_s": quantile(waits, 0.5),
        "latency_p99_s": quantile(waits, 0.99),
        "cycles": len(cycles),
        "batch_mean": sum(c.batch for c in cycles) / len(cycles) if cycles else 0.0,
        "budget": next((c.budget for c in cycles), None),
        "cost_max": max((c.cost for c in cycles), default=0),
        "padding_fraction": sum(c.padding for c in cycles) / cost if cost else 0.0,
        "preemptions": sum(len(c.preempted) for c in cycles),
        "effective_compute_ratio": effective_compute_ratio(trace, baseline_slots),
        "baseline_slots": baseline_slots,
        "batch_passes": sum(c.refresh_passes + c.reuse_passes for c in cycles),
        "row_passes": row_passes,
        "row_tokens": sum(c.row_tokens for c in cycles),
        "tokens_per_row_pass": committed / row_passes if row_passes else 0.0,
        "straggler_wait_steps": straggler_wait(trace),
    }


def quantile(values: list[float], q: float) -> float | None:
    """Linear-interpolation quantile of sorted ``values``; ``None`` of none."""
    if not values:
        return None
    place = q * (len(values) - 1)
    low = int(place)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (place - low)


def compare(traces: Mapping[str, Trace], baseline_slots: int = 8) -> pd.DataFrame:
    """Summaries side by side (one column a trace) with the shares of `waste` below them."""
    import pandas as pd

    columns = {}
    for name, trace in traces.items():
        parts = waste(trace)
        total = sum(parts.values()) or 1
        shares = {f"share of row-tokens: {WASTE_LABELS[k]}": v / total for k, v in parts.items()}
        columns[name] = pd.Series(summarize(trace, baseline_slots) | shares, dtype=object)  # counts stay whole numbers
    return pd.DataFrame(columns)
