"""The notebooks that come with BlockServe: where they are, and a copy of them to work in."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from blockserve.core import BlockServeError, unknown_name

_PACKAGE = Path(__file__).resolve().parents[1]


def notebook_folder() -> Path:
    """``notebooks/`` of the checkout when the package runs from one, else the copy inside the wheel."""
    checkout = _PACKAGE.parent
    if (checkout / "pyproject.toml").is_file() and (checkout / "notebooks").is_dir():
        return checkout / "notebooks"
    return _PACKAGE / "_notebooks"


def available() -> dict[str, Path]:
    """Name → path of every notebook that ships, in the order of their names (``00_tour`` first)."""
    return {path.stem: path for path in sorted(notebook_folder().glob("*.ipynb"))}


def find(name: str) -> Path:
    """The notebook called ``name``, or the file at that path if ``name`` ends in ``.ipynb``.

    Raises `UnknownNameError` with the nearest name for an unknown one.
    """
    if name.endswith(".ipynb"):
        path = Path(name)
        if path.is_file():
            return path
        raise BlockServeError(f"no notebook at {name}; give a path that exists, or one of: {', '.join(available())}")
    known = available()
    if name not in known:
        raise unknown_name("notebook", name, known)
    return known[name]


@dataclass(frozen=True)
class CopiedNotebooks:
    """What `copy_notebooks` did. ``kept`` are the files that were there already and differ from ours."""

    target: Path
    copied: tuple[Path, ...]
    kept: tuple[Path, ...]


def copy_notebooks(target: str | Path) -> CopiedNotebooks:
    """Copy every notebook into the folder ``target`` (made if missing); never overwrite a file that differs.

    Running a copy changes it, so a differing file is somebody's work: it stays, and the result names it.
    """
    target = Path(target)
    if target.exists() and not target.is_dir():
        raise BlockServeError(f"{target} is a file; give a folder for the notebooks")
    target.mkdir(parents=True, exist_ok=True)
    copied, kept = [], []
    for source in available().values():
        copy = target / source.name
        if not copy.exists():
            shutil.copyfile(source, copy)
            copied.append(copy)
        elif copy.read_bytes() != source.read_bytes():
            kept.append(copy)
    return CopiedNotebooks(target, tuple(copied), tuple(kept))


def launch_lab(target: str | Path, options: Sequence[str] = ()) -> int:
    """Open JupyterLab on the folder ``target`` and wait until it ends; returns its exit code.

    ``options`` go to JupyterLab as they are (``["--no-browser", "--port=8889"]``). It runs in this interpreter's
    environment, so the kernel it offers first is the one that has BlockServe.
    """
    return wait_for([sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={Path(target).resolve()}", *options])


def wait_for(command: Sequence[str]) -> int:
    """Run a server until it ends; its exit code."""
    process = subprocess.Popen(command)
    # Ctrl-C reaches both; it is for the server, which asks and then ends its kernels. Ignored only from here on, as a
    # child started later would inherit it.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return process.wait()
    finally:
        signal.signal(signal.SIGINT, before)
