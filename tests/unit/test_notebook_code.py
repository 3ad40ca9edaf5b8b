"""The notebooks' code without running it: it compiles, and every name that it imports from BlockServe exists."""

from __future__ import annotations

import ast
import importlib
import json
from pathlib import Path

import pytest

from blockserve.report import available


def cells(path: Path) -> list[str]:
    """Source of the code cells."""
    found = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in found if cell["cell_type"] == "code"]


def imported(source: str) -> list[tuple[str, str | None]]:
    """(module, name) of every import; the name is ``None`` for a whole module."""
    found: list[tuple[str, str | None]] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [(alias.name, None) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found += [(node.module, alias.name) for alias in node.names]
    return [(module, name) for module, name in found if module.startswith("blockserve")]


def exists(module: str, name: str | None) -> bool:
    """Whether the module is there, and ``name`` a member or a submodule of it."""
    try:
        if name is None or not hasattr(importlib.import_module(module), name):
            importlib.import_module(module if name is None else f"{module}.{name}")
    except ModuleNotFoundError:
        return False
    return True


@pytest.mark.parametrize("path", available().values(), ids=available())
def test_what_a_notebook_imports_exists(path):
    names = [pair for source in cells(path) for pair in imported(source)]
    assert names, "every notebook uses BlockServe"
    assert [pair for pair in names if not exists(*pair)] == []
