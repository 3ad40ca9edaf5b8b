"""One notebook over a grid of parameters, and every notebook that ships: a failure is noted, the rest goes on."""

from __future__ import annotations

import html
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from blockserve.core import BlockServeError
from blockserve.report.library import available, find
from blockserve.report.parameter import check_parameters, parameters, parse_assignments
from blockserve.report.runner import ReportError, ReportResult, run_report
from blockserve.reprs import readable

_COMMA = re.compile(r",(?![^\[(]*[\])])")  # not inside a list or tuple
_ABOUT = ("parameters", "manifest", "timings")  # of results.json: what a run was, not what it found
_STYLE = """body{font:14px system-ui,sans-serif;margin:2rem;color:#222}table{border-collapse:collapse}
th,td{padding:.3rem .7rem;border-bottom:1px solid #ddd;text-align:right;white-space:nowrap}
th{background:#f4f4f4;position:sticky;top:0}td:first-child,th:first-child{text-align:left}
.failed{color:#b00020;text-align:left;white-space:normal}div{overflow-x:auto}"""


@dataclass(frozen=True)
class Cell:
    """One run. ``values``: what it was given; ``result`` or ``error``, the other is ``None``."""

    name: str
    values: Mapping[str, Any]
    result: ReportResult | None = None
    error: str | None = None


@dataclass(frozen=True)
class Sweep:
    """What `run_sweep` left behind: its runs in the order of the grid, and the page that lists them."""

    index: Path
    cells: tuple[Cell, ...] = field(default_factory=tuple)

    @property
    def failed(self) -> int:
        """How many runs stopped at an error."""
        return sum(cell.error is not None for cell in self.cells)


def parse_sweeps(texts: Iterable[str]) -> dict[str, list[str]]:
    """``["slots=2,4", "seed=0,1"]`` → the values of each name as text; commas inside brackets do not part values."""
    found = {}
    for name, text in parse_assignments(texts).items():
        values = [value.strip() for value in _COMMA.split(text)]
        if not all(values):
            raise BlockServeError(f"--sweep {name}={text}: a value is missing; write {name}=a,b,c")
        if len(set(values)) < len(values):
            raise BlockServeError(f"--sweep {name}={text}: a value is given twice")
        found[name] = values
    return found


def run_sweep(
    name: str,
    out_dir: str | Path,
    sweeps: Mapping[str, Sequence[Any]],
    given: Mapping[str, Any] | None = None,
    *,
    progress: bool = True,
) -> Sweep:
    """Run the notebook ``name`` once for every combination of ``sweeps`` (parameter → values), the last one fastest.

    ``given`` holds for all. Each run has a folder of its own under ``out_dir/NAME-sweep/``; ``index.html`` there
    lists them with what they found. All values are checked before the first run; a run that fails is listed.
    """
    source = find(name)
    known, fixed = parameters(source), dict(given or {})
    both = sorted(set(fixed) & set(sweeps))
    if both:
        raise BlockServeError(f"parameter {both[0]!r} is both fixed and swept; give it once")
    grid = [dict(zip(sweeps, values, strict=True)) for values in itertools.product(*sweeps.values())]
    checked = [check_parameters(known, fixed | values) for values in grid]
    folder = Path(out_dir).resolve() / f"{source.stem}-sweep"
    cells = []
    for number, (varied, values) in enumerate(zip(grid, checked, strict=True), start=1):
        own = {key: values[key] for key in varied}
        cells.append(_run(name, folder / f"{number:02d}-{_slug(own)}", values, own, progress))
    index = folder / "index.html"
    index.write_text(_index(source.stem, cells, folder), encoding="utf-8")
    return Sweep(index, tuple(cells))


def run_all(out_dir: str | Path, *, quick: bool = False, progress: bool = True) -> Iterator[Cell]:
    """Run every notebook that ships, one item each as it ends; ``quick``: at toy size where a notebook has one."""
    for name, path in available().items():
        values = {"quick": True} if quick and "quick" in parameters(path) else {}
        yield _run(name, Path(out_dir), values, values, progress)


def headline(results: Mapping[str, Any]) -> dict[str, Any]:
    """What a run found, flat: ``headline`` of its results if it has one, else every number outside `_ABOUT`."""
    chosen = results.get("headline")
    return dict(flatten(chosen if chosen else {k: v for k, v in results.items() if k not in _ABOUT}))


def flatten(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted path, leaf) of nested objects and lists; an empty one is a leaf."""
    if isinstance(value, (dict, list)) and value:
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in items:
            yield from flatten(inner, f"{path}.{key}" if path else str(key))
    else:
        yield path, value


def _run(name: str, out: Path, values: Mapping[str, Any], shown: Mapping[str, Any], progress: bool) -> Cell:
    try:
        return Cell(name, shown, run_report(name, out, values, progress=progress))
    except ReportError as error:
        return Cell(name, shown, error=str(error))


def _slug(values: Mapping[str, Any]) -> str:
    """A folder name that says what was varied."""
    text = ",".join(f"{key}={value}" for key, value in values.items())
    return re.sub(r"[^\w.=,+-]+", "_", text)[:80]


def _index(title: str, cells: Sequence[Cell], folder: Path) -> str:
    """The page: one line a run, what was varied before what was found."""
    varied = list(cells[0].values)
    found = {id(cell): headline(cell.result.results) if cell.result else {} for cell in cells}
    metrics = list(dict.fromkeys(key for numbers in found.values() for key in numbers))
    head = "".join(f"<th>{html.escape(key)}</th>" for key in ("report", *varied, *metrics, "seconds"))
    lines = []
    for number, cell in enumerate(cells, start=1):
        inputs = "".join(f"<td>{html.escape(str(cell.values[key]))}</td>" for key in varied)
        if cell.result is None:
            rest = f"<td class='failed' colspan='{len(metrics) + 1}'>{html.escape(cell.error or '')}</td>"
            lines.append(f"<tr><td>{number} failed</td>{inputs}{rest}</tr>")
            continue
        link = html.escape(str(cell.result.html.relative_to(folder)))
        numbers = found[id(cell)]
        values = "".join(f"<td>{html.escape(readable(numbers.get(key)))}</td>" for key in metrics)
        lines.append(
            f"<tr><td><a href='{link}'>{number}</a></td>{inputs}{values}<td>{cell.result.seconds:.1f}</td></tr>"
        )
    return (
        f"<!doctype html><html lang='en'><meta charset='utf-8'><title>{html.escape(title)}: sweep</title>"
        f"<style>{_STYLE}</style><h1>{html.escape(title)}: {len(cells)} runs</h1>"
        f"<div><table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table></div></html>\n"
    )
