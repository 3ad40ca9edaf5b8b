"""What gets installed: the three places that name versions agree, imports are declared, the wheel is complete."""

from __future__ import annotations

import ast
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from blockserve.report import parameters

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PACKAGE_FOLDERS = {"blockserve": ROOT / "blockserve", "blockserve_viz": ROOT / "viz" / "blockserve_viz"}


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def names(requirements: list[str]) -> set[str]:
    return {canonical(Requirement(text).name) for text in requirements}


DEPENDENCIES = names(PROJECT["dependencies"])
EXTRAS = {extra: names(texts) for extra, texts in PROJECT["optional-dependencies"].items()}


# ------------------------------------------------------------------------------- versions in three places


@pytest.fixture
def environment():
    return yaml.safe_load((ROOT / "environment.yml").read_text())


def makefile_torch() -> str:
    return re.search(r"^TORCH \?= (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE).group(1)


def test_conda_and_make_install_the_same_torch(environment):
    pip = environment["dependencies"][-1]["pip"]
    assert makefile_torch() in pip


def test_the_torch_pin_is_inside_pyprojects_range():
    pin = Requirement(makefile_torch())
    wanted = next(Requirement(text) for text in PROJECT["dependencies"] if Requirement(text).name == "torch")
    version = next(iter(pin.specifier)).version
    assert pin.name == "torch" and wanted.specifier.contains(version)


def test_environment_yml_agrees_with_pyproject(environment):
    *conda, pip = environment["dependencies"]
    assert environment["name"] == PROJECT["name"]
    assert f"python{PROJECT['requires-python']}" in conda
    assert {"nodejs", "pip"} <= {re.split(r"[<>=]", text)[0] for text in conda}
    editable = next(text for text in pip["pip"] if text.startswith("-e"))
    extras = re.fullmatch(r"-e \.\[([\w,-]+)\]", editable).group(1).split(",")
    assert set(extras) <= set(EXTRAS)


def test_make_installs_the_dev_extra():
    assert "-e '.[dev]'" in (ROOT / "Makefile").read_text()


# ------------------------------------------------------------------------------------------------ imports


def third_party(files: list[Path]) -> dict[str, set[str]]:
    """Top-level module name → files that import it, standard library and our own left out."""
    ours = {"blockserve", "blockserve_viz", *(path.stem for path in (ROOT / "tests").rglob("*.py"))}
    found: dict[str, set[str]] = {}
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            modules = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                modules = [node.module]
            for top in {module.split(".")[0] for module in modules} - ours - sys.stdlib_module_names:
                found.setdefault(top, set()).add(str(path.relative_to(ROOT)))
    return found


def undeclared(files: list[Path], declared: set[str]) -> dict[str, set[str]]:
    """The imported modules of which no providing distribution is in ``declared``."""
    providers = importlib.metadata.packages_distributions()
    return {
        module: where
        for module, where in third_party(files).items()
        if not declared & {canonical(name) for name in providers.get(module, [module])}
    }


def test_every_module_that_the_packages_import_is_a_dependency():
    files = [path for folder in PACKAGE_FOLDERS.values() for path in folder.rglob("*.py")]
    assert not undeclared(files, DEPENDENCIES)


def test_every_module_that_the_tests_import_is_a_dependency_or_in_dev():
    assert not undeclared(list((ROOT / "tests").rglob("*.py")), DEPENDENCIES | EXTRAS["dev"])


# -------------------------------------------------------------------------------------------------- wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A freshly built wheel, open."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as archive:
        yield archive


def expected_files() -> set[str]:
    """Every file of both packages and every notebook, as they must lie in the wheel."""
    found = {f"blockserve/_notebooks/{path.name}" for path in NOTEBOOKS}
    for package, folder in PACKAGE_FOLDERS.items():
        skip = {"__pycache__", ".ipynb_checkpoints"}
        paths = (path for path in folder.rglob("*") if path.is_file() and not skip.intersection(path.parts))
        found |= {f"{package}/{path.relative_to(folder).as_posix()}" for path in paths}
    return found


def test_the_wheel_holds_the_packages_and_the_notebooks_and_nothing_else(wheel):
    held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert held == expected_files()


def test_the_wheel_carries_its_licence_and_its_command(wheel):
    assert any(name.endswith("dist-info/licenses/LICENSE") for name in wheel.namelist())
    assert any(name.endswith("dist-info/entry_points.txt") for name in wheel.namelist())


def test_the_wheel_finds_its_notebooks_outside_the_checkout(wheel, tmp_path):
    wheel.extractall(tmp_path)
    script = "import blockserve.report as r; print([str(p) for p in r.available().values()])"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert ast.literal_eval(done.stdout) == [str(tmp_path / "blockserve/_notebooks" / path.name) for path in NOTEBOOKS]


def test_the_licence_is_the_one_that_pyproject_names():
    assert PROJECT["license"] == "Apache-2.0"
    assert "Apache License\n                           Version 2.0" in (ROOT / "LICENSE").read_text()


# ---------------------------------------------------------------------------------------------- notebooks


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_shipped_notebook_has_parameters_and_a_kernel_and_no_output(path):
    notebook = json.loads(path.read_text())
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert not [cell["id"] for cell in code if cell["outputs"] or cell["execution_count"] is not None]
    assert not {"widgets", "papermill"} & set(notebook["metadata"])
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    assert parameters(path), "a report needs a cell tagged `parameters`"
