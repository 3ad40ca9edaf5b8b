"""``blockserve report`` and ``blockserve lab``: the notebooks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from blockserve.cli.app import app, last_line
from blockserve.reprs import readable


@app.command()
def report(
    name: Annotated[str, typer.Argument(help="A notebook that ships, or a path to one.")],
    parameter: Annotated[list[str] | None, typer.Option("-p", "--parameter", help="key=value")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the report.")] = Path("reports"),
    progress: Annotated[bool, typer.Option(help="Show a progress bar.")] = True,
) -> None:
    """Run a notebook and write it as one HTML file that opens offline."""
    from blockserve.report import parse_assignments, run_report

    result = run_report(name, out, parse_assignments(parameter or []), progress=progress)
    size = result.html.stat().st_size
    _print_results(result.results)
    print(f"{result.html}  ({size / 1e6:.1f} MB, {result.seconds:.0f} s; opens offline)")
    values = {"report": str(result.html), "notebook": str(result.notebook), "seconds": round(result.seconds, 2)}
    last_line(values | {"html_bytes": size, "results": result.results})


def _print_results(results: Mapping[str, Any]) -> None:
    """The headline numbers of a report: single ones a line each, ``results`` and ``timings`` as one table."""
    from rich.console import Console
    from rich.table import Table

    for key, value in results.items():
        if not isinstance(value, (dict, list)):
            print(f"{key}: {readable(value)}")
    runs = {**results.get("results", {})}
    for name, timings in results.get("timings", {}).items():
        runs[name] = runs.get(name, {}) | timings
    if runs and all(isinstance(run, dict) for run in runs.values()):
        table = Table("", *runs)
        for metric in dict.fromkeys(metric for run in runs.values() for metric in run):
            table.add_row(metric, *(readable(run.get(metric)) for run in runs.values()))
        Console(highlight=False).print(table)


@app.command()
def lab(
    folder: Annotated[Path, typer.Argument(help="Where to put the notebooks.")] = Path("blockserve-notebooks"),
    launch: Annotated[bool, typer.Option(help="Open JupyterLab after copying.")] = True,
) -> None:
    """Copy the notebooks and open JupyterLab on them."""
    from blockserve.report import copy_notebooks, launch_lab

    done = copy_notebooks(folder)
    print(f"{len(done.copied)} notebooks copied to {done.target.resolve()}")
    for path in done.kept:
        print(f"  kept {path.name}: it differs from ours (your work is not overwritten)")
    code = launch_lab(folder) if launch else 0
    last_line({"folder": str(done.target.resolve()), "copied": len(done.copied), "kept": [p.name for p in done.kept]})
    raise typer.Exit(code)
