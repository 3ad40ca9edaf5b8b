"""``blockserve app``: a lesson or the explorer as a web page without code, by Voila (the optional extra ``apps``)."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from blockserve.cli.app import app, last_line
from blockserve.core import ConfigError, check_choice

if TYPE_CHECKING:
    from nbformat import NotebookNode

LESSON = "03_block_scheduling"
APPS = ("lesson", "explorer")
EXERCISE = re.compile(r'^bs\.check_exercise\("(\d\d)", (\d), answer\)$', re.M)

ABOUT_LESSON = """*This page shows no code. `blockserve lab` opens the notebook behind it; other requests of your
own for the last part:* `blockserve app lesson -p "prompts=[5, 18, 12]" -p "blocks=[3, 1, 2]"`."""
ABOUT_EXPLORER = """# What if?

Change the policy: the same requests are simulated again by the real scheduler. **All seconds are predicted.**"""
EXPLORER = """from blockserve.simulation.benchmarks import benchmark_profile
from blockserve.tracing import Trace
from blockserve_viz import Explorer

Explorer({source})"""
OWN_SOURCES = "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob: ws:"
BENCHMARK = 'benchmark_profile("gsm8k", 200), token_budget=16_384'  # LLaDA-8B on an H200, with GSM8K's lengths


@app.command("app")
def serve(
    name: Annotated[str, typer.Argument(help="lesson (notebook 03) or explorer.")] = "lesson",
    parameter: Annotated[list[str] | None, typer.Option("-p", "--parameter", help="lesson: key=value")] = None,
    trace: Annotated[Path | None, typer.Option(help="explorer: a recorded trace, instead of GSM8K's lengths.")] = None,
    port: Annotated[int, typer.Option(help="Port on this machine.")] = 8866,
    launch: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page.")] = True,
) -> None:
    """Serve a lesson or the explorer as a web page, until Ctrl-C. Needs the extra 'apps'."""
    check_choice("app", name, APPS)
    if (parameter and name != "lesson") or (trace and name != "explorer"):
        raise ConfigError("-p goes with the lesson, --trace with the explorer")
    if find_spec("voila") is None:
        raise ConfigError(
            f"the app {name!r} needs Voila, which is not installed; "
            "pip install 'blockserve[apps]', or in a checkout: pip install -e '.[apps]'"
        )
    import nbformat

    from blockserve.report.library import wait_for
    from blockserve.report.parameter import parse_assignments

    notebook = lesson(parse_assignments(parameter or [])) if name == "lesson" else explorer(trace)
    with TemporaryDirectory(prefix="blockserve-") as folder:
        path = Path(folder) / f"{name}.ipynb"
        nbformat.write(notebook, path)
        print(f"http://localhost:{port}/  (Ctrl-C ends it)", flush=True)
        code = wait_for(command(path, port, launch))
    last_line({"app": name, "port": port, "exit": code})
    raise typer.Exit(code)


def command(notebook: Path, port: int, launch: bool) -> Sequence[str]:
    """How Voila is started on ``notebook``: a kernel of this environment for every visitor, on this machine only.

    Its page would ask a content network for icons; the policy keeps the browser from it.
    """
    settings = {"headers": {"Content-Security-Policy": OWN_SOURCES}}
    options = [f"--port={port}", "--Voila.ip=localhost", f"--Voila.tornado_settings={settings}"]
    return [sys.executable, "-m", "voila", str(notebook), *options, *([] if launch else ["--no-browser"])]


def lesson(given: Mapping[str, Any]) -> NotebookNode:
    """The lesson's notebook with these parameters, and fields to answer in where a reader would edit a cell."""
    import nbformat
    from papermill.iorw import load_notebook_node
    from papermill.parameterize import parameterize_notebook

    from blockserve.report.library import find
    from blockserve.report.parameter import check_parameters, parameters

    source = find(LESSON)
    notebook = load_notebook_node(str(source))
    if given:
        values = check_parameters(parameters(source), given)
        notebook = parameterize_notebook(notebook, values, kernel_name="python3", language="python")
    for cell in notebook.cells:
        if cell.cell_type == "code" and (found := EXERCISE.search(cell.source)):
            cell.source = f'from blockserve_viz.answers import AnswerBox\n\nAnswerBox("{found[1]}", {found[2]})'
    notebook.cells.insert(1, nbformat.v4.new_markdown_cell(ABOUT_LESSON))
    return notebook


def explorer(trace: Path | None) -> NotebookNode:
    """A notebook of the explorer alone: on the recorded ``trace``, or on a benchmark's lengths."""
    import nbformat
    from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

    source = BENCHMARK
    if trace is not None:
        from blockserve.tracing import Trace

        Trace.load(trace)  # a mistake is told here and not on the page
        source = f"Trace.load({str(trace.resolve())!r})"
    cells = [new_markdown_cell(ABOUT_EXPLORER), new_code_cell(EXPLORER.format(source=source))]
    notebook = new_notebook(cells=cells, metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}})
    nbformat.validate(notebook)
    return notebook
