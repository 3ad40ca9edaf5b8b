"""Two runs' ``results.json`` side by side: what differs, number by number."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from blockserve.core import BlockServeError
from blockserve.report.sweep import flatten


@dataclass(frozen=True)
class Difference:
    """One entry that is not the same. ``None`` where a run has no such entry. ``path``: dotted."""

    path: str
    first: Any
    second: Any

    @property
    def ratio(self) -> float | None:
        """Second ÷ first, of two numbers."""
        numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in (self.first, self.second))
        return self.second / self.first if numbers and self.first else None


def compare_results(first: str | Path, second: str | Path, *, timings: bool = False) -> list[Difference]:
    """The entries of two ``results.json`` that differ, in the order of the first; ``timings`` count only if asked.

    Raises `BlockServeError` for a file that is missing or holds no JSON object.
    """
    a, b = (_entries(Path(path), timings) for path in (first, second))
    # Compared as JSON, in which 1, 1.0 and true are three things and a NaN equals itself.
    return [
        Difference(path, a.get(path), b.get(path))
        for path in dict.fromkeys([*a, *b])
        if path not in a or path not in b or json.dumps(a[path]) != json.dumps(b[path])
    ]


def _entries(path: Path, timings: bool) -> dict[str, Any]:
    try:
        results = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BlockServeError(f"cannot read {path}: {error.strerror}; give the results.json of a report") from None
    except ValueError as error:
        raise BlockServeError(f"{path} is no JSON: {error}") from None
    if not isinstance(results, dict):
        raise BlockServeError(f"{path} holds no JSON object; give the results.json of a report")
    return dict(flatten({key: value for key, value in results.items() if timings or key != "timings"}))
