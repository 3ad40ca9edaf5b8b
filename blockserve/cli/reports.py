"""``blockserve report`` and ``blockserve lab``: the notebooks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from blockserve.cli.app import app, last_line
from blockserve.core import ConfigError
from blockserve.reprs import readable


@app.command()
def report(
    name: Annotated[str | None, typer.Argument(help="A notebook that ships, or a path to one.")] = None,
    parameter: Annotated[list[str] | None, typer.Option("-p", "--parameter", help="key=value")] = None,
    sweep: Annotated[list[str] | None, typer.Option(help="key=a,b,c; several make a grid.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Every notebook that ships.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="With --all: at toy size.")] = False,
    diff: Annotated[tuple[Path, Path] | None, typer.Option(help="Compare two results.json.")] = None,
    timings: Annotated[bool, typer.Option("--timings", help="With --diff: compare the timings too.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for the report.")] = Path("reports"),
    progress: Annotated[bool, typer.Option(help="Show a progress bar.")] = True,
) -> None:
    """Run a notebook and write it as one HTML file that opens offline; or a grid of runs, or all notebooks."""
    if sum((name is not None, every, diff is not None)) != 1:
        raise ConfigError("give one of: the name of a notebook, --all, --diff A B")
    if (quick and not every) or (timings and diff is None) or ((parameter or sweep) and name is None):
        raise ConfigError("--quick goes with --all, --timings with --diff, -p and --sweep with the name of a notebook")
    if diff is not None:
        _difference(*diff, timings)
    elif every:
        _all(out, quick, progress)
    elif sweep:
        _sweep(name, out, sweep, parameter or [], progress)
    else:
        _one(name, out, parameter or [], progress)


def _one(name: str, out: Path, pairs: list[str], progress: bool) -> None:
    from blockserve.report import parse_assignments, run_report

    result = run_report(name, out, parse_assignments(pairs), progress=progress)
    size = result.html.stat().st_size
    _print_results(result.results)
    print(f"{result.html}  ({size / 1e6:.1f} MB, {result.seconds:.0f} s; opens offline)")
    values = {"report": str(result.html), "notebook": str(result.notebook), "seconds": round(result.seconds, 2)}
    last_line(values | {"html_bytes": size, "results": result.results})


def _sweep(name: str, out: Path, sweeps: list[str], pairs: list[str], progress: bool) -> None:
    from blockserve.report import parse_assignments, parse_sweeps, run_sweep

    done = run_sweep(name, out, parse_sweeps(sweeps), parse_assignments(pairs), progress=progress)
    for cell in done.cells:
        what = ", ".join(f"{key}={value}" for key, value in cell.values.items())
        print(f"{what}: {cell.error or f'{cell.result.seconds:.1f} s'}")
    print(f"{done.index}  ({len(done.cells)} runs, {done.failed} failed)")
    last_line({"index": str(done.index), "runs": len(done.cells), "failed": done.failed})
    raise typer.Exit(int(done.failed > 0))


def _all(out: Path, quick: bool, progress: bool) -> None:
    from blockserve.report import run_all

    reports: dict[str, Any] = {}
    for cell in run_all(out, quick=quick, progress=progress):
        if cell.result is None:
            print(f"{cell.name:30} FAILED  {cell.error}", flush=True)
            reports[cell.name] = {"error": cell.error}
            continue
        seconds, size = cell.result.seconds, cell.result.html.stat().st_size
        print(f"{cell.name:30} {seconds:6.1f} s {size / 1e6:6.1f} MB", flush=True)
        reports[cell.name] = {"report": str(cell.result.html), "seconds": round(seconds, 2), "html_bytes": size}
    failed = sum("error" in entry for entry in reports.values())
    last_line({"reports": reports, "failed": failed})
    raise typer.Exit(int(failed > 0))


def _difference(first: Path, second: Path, timings: bool) -> None:
    from rich.console import Console
    from rich.table import Column, Table

    from blockserve.report import compare_results

    found = compare_results(first, second, timings=timings)
    if found:
        table = Table(Column("entry", overflow="fold"), "first", "second", "second ÷ first")
        for entry in found:
            ratio = "" if entry.ratio is None else f"{entry.ratio:.3f}"
            table.add_row(entry.path, readable(entry.first), readable(entry.second), ratio)
        Console(highlight=False).print(table)
    print(f"{len(found)} entries differ" if found else "the same" + ("" if timings else ", timings aside"))
    last_line({"same": not found, "differences": {d.path: [d.first, d.second] for d in found}})


def _print_results(results: Mapping[str, Any]) -> None:
    """What a report found: single numbers a line each, ``results`` and ``timings`` of its runs as one table."""
    from rich.console import Console
    from rich.table import Table

    for key, value in (dict(results) | results.get("headline", {})).items():
        if not isinstance(value, (dict, list)):
            print(f"{key}: {readable(value)}")
    runs = {**results.get("results", {})}
    for name, timings in results.get("timings", {}).items():
        if isinstance(timings, dict):
            runs[name] = runs.get(name, {}) | timings
        else:  # a measured number, or a mean with its 95% interval
            print(f"{name}: {' ± '.join(map(readable, timings if isinstance(timings, list) else [timings]))}")
    if runs and all(isinstance(run, dict) for run in runs.values()):
        table = Table("", *runs)
        for metric in dict.fromkeys(metric for run in runs.values() for metric in run):
            table.add_row(metric, *(readable(run.get(metric)) for run in runs.values()))
        Console(highlight=False).print(table)


@app.command()
def lab(
    folder: Annotated[Path, typer.Argument(help="Where to put the notebooks.")] = Path("blockserve-notebooks"),
    launch: Annotated[bool, typer.Option(help="Open JupyterLab after copying.")] = True,
    port: Annotated[
        int | None, typer.Option(help="Port of JupyterLab; the first free one from 8888 by default.")
    ] = None,
    browser: Annotated[bool, typer.Option(help="Open JupyterLab's page in a browser.")] = True,
    allow_root: Annotated[
        bool, typer.Option("--allow-root", help="Let root run JupyterLab, as in a container.")
    ] = False,
) -> None:
    """Copy the notebooks and open JupyterLab on them."""
    from blockserve.report import copy_notebooks, launch_lab

    done = copy_notebooks(folder)
    print(f"{len(done.copied)} notebooks copied to {done.target.resolve()}")
    for path in done.kept:
        print(f"  kept {path.name}: it differs from ours (your work is not overwritten)")
    options = [] if port is None else [f"--port={port}"]
    options += [flag for flag, wanted in (("--no-browser", not browser), ("--allow-root", allow_root)) if wanted]
    code = launch_lab(folder, options) if launch else 0
    last_line({"folder": str(done.target.resolve()), "copied": len(done.copied), "kept": [p.name for p in done.kept]})
    raise typer.Exit(code)
