"""The floors of the code: who may import whom, and what must not be loaded.

A file imports from its own floor's own group and from the floors below. CONTRIBUTING.md has the picture.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {"blockserve": ROOT / "blockserve", "blockserve_viz": ROOT / "viz" / "blockserve_viz"}

# From the ground up; names in one inner tuple form a group that may import one another.
FLOORS: tuple[tuple[tuple[str, ...], ...], ...] = (
    (("core", "geometry", "clock", "reprs", "offline"),),
    (("tracing",),),
    (("workload",), ("execution",), ("simulation",)),
    (("checkpoints",), ("scheduling",)),
    (("engine", "handle", "session", "presets", "preparation", "outputs", "manifest"),),
    (("studies",),),
    (("training",),),
    (("cli", "report"), ("blockserve_viz",)),
)
WITHOUT_TORCH = (
    "core",
    "geometry",
    "clock",
    "reprs",
    "offline",
    "tracing",
    "workload",
    "scheduling",
    "simulation",
    "report",
)
HEAVY = ("torch", "transformers", "plotly", "anywidget", "pandas", "papermill", "nbconvert")

PLACE = {name: (floor, group) for floor, groups in enumerate(FLOORS) for group in groups for name in group}


def files() -> list[tuple[str, Path]]:
    """(dotted module name, path) of every Python file of both packages."""
    found = []
    for package, folder in PACKAGES.items():
        for path in sorted(folder.rglob("*.py")):
            parts = [package, *path.relative_to(folder).with_suffix("").parts]
            found.append((".".join(parts).removesuffix(".__init__"), path))
    return found


def imports(module: str, source: str, is_package: bool = False) -> set[str]:
    """Absolute dotted names that ``source`` imports, at any depth, also inside functions and ``if TYPE_CHECKING``."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = module.split(".")
            base = base[: len(base) - node.level + is_package] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            found.update(f"{origin}.{alias.name}" for alias in node.names)
    return found


def unit(dotted: str) -> str | None:
    """The name in `FLOORS` that a dotted name belongs to; ``None`` for other packages, "" for the facade."""
    package, _, rest = dotted.partition(".")
    if package == "blockserve_viz":
        return package
    if package != "blockserve":
        return None
    first = rest.partition(".")[0]
    return first if first in PLACE else ""


def forbidden(module: str, imported: set[str]) -> list[str]:
    """Those of ``imported`` that a file of ``module`` may not import."""
    here = unit(module)
    if not here:
        return []  # blockserve/__init__.py gathers names from every floor, lazily
    floor, group = PLACE[here]
    wrong = []
    for name in sorted(imported):
        there = unit(name)
        if there is None or there in group:
            continue
        if there == "" and floor < len(FLOORS) - 1:
            wrong.append(f"{module} imports the facade: {name}")
        elif there and PLACE[there][0] >= floor:
            wrong.append(f"{module} imports upwards or sideways: {name}")
    return wrong


def test_every_import_goes_down():
    wrong = []
    for module, path in files():
        wrong += forbidden(module, imports(module, path.read_text(), path.name == "__init__.py"))
    assert not wrong, "\n".join(wrong)


def test_every_module_has_its_floor():
    units = {unit(module) or module for module, _ in files()}
    assert units <= {*PLACE, "blockserve"}, f"not in FLOORS: {sorted(units - {*PLACE, 'blockserve'})}"


@pytest.mark.parametrize(
    ("module", "source", "count"),
    [
        ("blockserve.core", "import blockserve.engine", 1),
        ("blockserve.core", "def f():\n    from blockserve import engine", 1),
        ("blockserve.execution.model", "from ..workload import tasks", 1),
        ("blockserve.execution.model", "from .cache import Cache\nfrom ..core import Row", 0),
        ("blockserve.scheduling.queue", "import blockserve as bs", 1),
        ("blockserve.cli", "from blockserve import report, __version__", 0),
        ("blockserve.report.html", "import blockserve_viz", 1),
        ("blockserve.engine", "from blockserve.scheduling import queue", 0),
        ("blockserve_viz.player", "import blockserve as bs\nfrom blockserve.report import to_html", 1),
    ],
)
def test_the_check_itself_sees_a_wrong_arrow(module, source, count):
    assert len(forbidden(module, imports(module, source))) == count


def test_policy_trace_and_report_name_no_torch():
    wrong = []
    for module, path in files():
        if unit(module) in WITHOUT_TORCH:
            names = imports(module, path.read_text(), path.name == "__init__.py")
            wrong += [f"{module}: {name}" for name in names if name.split(".")[0] in ("torch", "transformers")]
    assert not wrong, "\n".join(wrong)


def run(script: str) -> str:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_blockserve_loads_nothing_heavy():
    script = f"import sys, blockserve; print([m for m in {HEAVY} if m in sys.modules])"
    assert run(script) == "[]"


def test_the_torch_free_modules_load_where_torch_is_missing():
    modules = [module for module, _ in files() if unit(module) in WITHOUT_TORCH]
    block = "import sys, importlib; sys.modules['torch'] = sys.modules['transformers'] = None"
    run(f"{block}\nfor module in {modules}: importlib.import_module(module)")
