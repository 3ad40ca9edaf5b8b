"""What an experiment found, as ``results.json`` holds it: headline numbers, parameters, manifest, timings apart."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from blockserve.manifest import versions
from blockserve.tracing import Trace

# Student's t: the 97.5% quantile at 1, 2, … degrees of freedom.
_T = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)

_Z = 1.96  # standard normal, 97.5%


@dataclass(frozen=True)
class Interval:
    """A mean and its 95% interval, ``None`` where a single repeat gives none."""

    mean: float
    half: float | None

    def __truediv__(self, by: float) -> Interval:
        """The interval in units of ``by``, a number without an interval of its own."""
        return Interval(self.mean / by, None if self.half is None else self.half / by)

    def __str__(self) -> str:
        return format(self, "")

    def __format__(self, spec: str) -> str:
        """Both numbers by the same ``spec``: ``f"{interval:.1%}"`` is "92.0% ± 1.5%"; two decimals without one."""
        spec = spec or ".2f"
        mean = format(self.mean, spec)
        return mean if self.half is None else f"{mean} ± {format(self.half, spec)}"


def interval(values: Sequence[float]) -> Interval:
    """Mean and 95% interval by Student's t."""
    if len(values) < 2:
        return Interval(mean(values), None)
    freedom = len(values) - 1
    t = _T[freedom - 1] if freedom <= len(_T) else 1.96 + 2.4 / freedom
    return Interval(mean(values), t * stdev(values) / len(values) ** 0.5)


def wilson(share: float, n: int) -> tuple[float, float]:
    """The 95% interval of a share seen in ``n`` trials (Wilson's score: sound near 0 and 1, where models live)."""
    middle = (share + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
    half = _Z / (1 + _Z**2 / n) * (share * (1 - share) / n + _Z**2 / (4 * n**2)) ** 0.5
    return max(0.0, middle - half), min(1.0, middle + half)


def share_with_interval(share: float, n: int) -> str:
    """A share seen in ``n`` trials with its 95% interval: ``96.9% (84.3–99.4)``."""
    low, high = wilson(share, n)
    return f"{share:.1%} ({100 * low:.1f}–{100 * high:.1f})"


def compared(found: Interval, reference: Interval) -> str:
    """``higher`` or ``lower`` where the two 95% intervals are apart, else ``not shown to differ``."""
    apart = (found.half or 0.0) + (reference.half or 0.0)
    if found.half is None or reference.half is None or abs(found.mean - reference.mean) <= apart:
        return "not shown to differ"
    return "higher" if found.mean > reference.mean else "lower"


def write_results(
    headline: Mapping[str, Any],
    parameters: Mapping[str, Any],
    trace: Trace | None = None,
    *,
    seconds: Mapping[str, Any] | None = None,
    path: str | Path = "results.json",
    **tables: Any,
) -> dict[str, Any]:
    """Write and return a report's results: the same parameters give the same file, ``timings`` aside.

    ``trace``: any run of the report, for the manifest; ``None`` where nothing ran but the simulator. ``seconds``: what
    was worked out from seconds; a result where they are predicted, a timing where they are measured.
    """
    measured = trace is not None and not trace.run.device.startswith("simulated")
    found = dict(headline) | ({} if measured else dict(seconds or {}))
    results = {"headline": found, "parameters": parameters, **tables}
    results |= {"timings": (seconds or {}) if measured else {}, "simulated": not measured}
    results["manifest"] = _manifest(trace)
    Path(path).write_text(json.dumps(results, indent=2, default=_plain) + "\n", encoding="utf-8")
    return results


def _manifest(trace: Trace | None) -> dict[str, Any]:
    run = trace.run if trace is not None else None
    facts = {name: getattr(run, name) for name in ("seed", "device", "dtype", "workload")} if run else {}
    return {"versions": versions(), **facts, "revision": _revision()}


def _revision() -> str | None:
    """The git revision of the package's checkout; ``None`` where it runs from no checkout."""
    folder = Path(__file__).resolve().parents[2]
    if not (folder / ".git").exists():
        return None
    command = ["git", "-C", str(folder), "rev-parse", "--short=12", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


def _plain(value: Any) -> Any:
    """NumPy's numbers and intervals for JSON."""
    if isinstance(value, Interval):
        return [value.mean, value.half]
    item: Callable[[], Any] | None = getattr(value, "item", None)
    if item is None:
        raise TypeError(f"{value!r} cannot be written to results.json")
    return item()
