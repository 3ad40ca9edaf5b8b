"""Run a notebook with parameters and write it as one HTML file that plays offline; copy notebooks for JupyterLab.

Knows papermill, nbconvert and Jupyter's file formats; knows nothing of engines, schedulers or traces. It never
imports ``blockserve_viz``: a saved widget carries its own code. Heavy packages load inside the functions.
"""

from blockserve.report.difference import Difference, compare_results
from blockserve.report.html import to_html
from blockserve.report.library import CopiedNotebooks, available, copy_notebooks, find, launch_lab
from blockserve.report.parameter import Parameter, parameters, parse_assignments
from blockserve.report.runner import ReportError, ReportResult, run_report
from blockserve.report.sweep import Cell, Sweep, parse_sweeps, run_all, run_sweep

__all__ = [
    "Cell",
    "CopiedNotebooks",
    "Difference",
    "Parameter",
    "ReportError",
    "ReportResult",
    "Sweep",
    "available",
    "compare_results",
    "copy_notebooks",
    "find",
    "launch_lab",
    "parameters",
    "parse_assignments",
    "parse_sweeps",
    "run_all",
    "run_report",
    "run_sweep",
    "to_html",
]
