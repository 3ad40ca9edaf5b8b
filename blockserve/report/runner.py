"""Execute one notebook by papermill, in this process, and export it."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from blockserve.core import BlockServeError
from blockserve.report.html import to_html
from blockserve.report.library import find
from blockserve.report.parameter import check_parameters, parameters


class ReportError(BlockServeError):
    """A notebook stopped at an error. Its output up to there is kept: ``notebook`` is the path."""

    exit_code = 1  # of the command; a user's mistake is 2

    def __init__(self, message: str, notebook: Path) -> None:
        super().__init__(message)
        self.notebook = notebook


@dataclass(frozen=True)
class ReportResult:
    """What a run left behind. Filled by `run_report`.

    ``html``, ``notebook``: the two files; ``folder``: where the notebook ran, with all that it wrote there;
    ``results``: its ``results.json``, empty when it wrote none; ``seconds``: execution and export.
    """

    name: str
    html: Path
    notebook: Path
    folder: Path
    results: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0


def run_report(
    name: str, out_dir: str | Path, given: Mapping[str, Any] | None = None, *, progress: bool = True
) -> ReportResult:
    """Run the notebook ``name`` (one of `available`, or a path) and write ``out_dir/name.html`` and ``.ipynb``.

    ``given`` are parameter values, typed or as text. The notebook runs in ``out_dir/name/``, so two reports in one
    folder do not overwrite each other's ``results.json``. Raises `UnknownNameError` and `ConfigError` before
    anything runs, and `ReportError` when a cell fails.
    """
    source = find(name)
    values = check_parameters(parameters(source), given or {})
    out = Path(out_dir).resolve()
    folder = out / source.stem
    notebook, html, results = out / f"{source.stem}.ipynb", out / f"{source.stem}.html", folder / "results.json"
    if notebook == source.resolve():
        raise BlockServeError(f"the report would overwrite its own notebook {source}; give another output folder")
    folder.mkdir(parents=True, exist_ok=True)
    for stale in (html, results):  # an earlier run's figures must not pass for this run's
        stale.unlink(missing_ok=True)
    start = time.perf_counter()
    _execute(source, notebook, values, folder, progress)
    html.write_text(to_html(notebook), encoding="utf-8")
    figures = json.loads(results.read_text(encoding="utf-8")) if results.is_file() else {}
    return ReportResult(source.stem, html, notebook, folder, figures, time.perf_counter() - start)


def _execute(source: Path, output: Path, values: Mapping[str, Any], folder: Path, progress: bool) -> None:
    """Papermill on ``source``; the kernel is the one of this environment, whatever the notebook's metadata names."""
    import papermill
    from nbclient.exceptions import DeadKernelError
    from papermill.exceptions import PapermillExecutionError

    try:
        papermill.execute_notebook(
            _literal(source),
            _literal(output),
            parameters=dict(values),
            kernel_name="python3",
            language="python",
            cwd=str(folder),
            progress_bar=progress,
            extra_arguments=["--log-level=ERROR"],  # else ipykernel warns on every run that loopback is not encrypted
        )
    except PapermillExecutionError as error:
        where = f"cell {_cell_number(output, error.exec_count)} (In [{error.exec_count}])"
        line = f"{error.ename}: {error.evalue}".strip().splitlines()[0]
        message = f"{source.name} stopped at {where}: {line}. Its output up to there: {output}"
        raise ReportError(message, output) from None
    except DeadKernelError:
        message = f"{source.name}: the kernel died (often for lack of memory). Its output up to there: {output}"
        raise ReportError(message, output) from None


def _literal(path: Path) -> str:
    """The path with braces doubled: papermill formats paths with the parameters."""
    return str(path).replace("{", "{{").replace("}", "}}")


def _cell_number(executed: Path, execution_count: int) -> int:
    """Which cell of the source notebook ran as ``In [execution_count]``, from 1; papermill's own do not count."""
    import nbformat

    added = {"injected-parameters", "papermill-error-cell-tag"}
    cells = nbformat.read(executed, as_version=4).cells
    own = [cell for cell in cells if not added.intersection(cell.metadata.get("tags", ()))]
    return 1 + next(i for i, cell in enumerate(own) if cell.get("execution_count") == execution_count)
