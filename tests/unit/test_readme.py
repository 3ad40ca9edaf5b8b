"""README.md tells the truth: its code runs, its commands and links exist, no notebook or preset is left out."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from blockserve.cli import app
from blockserve.presets import PRESETS
from blockserve.report import available

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "README.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


def anchor(heading: str) -> str:
    """The link target that a rendered page gives to a heading."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def table_after(heading: str) -> list[str]:
    """First cells of the first table below a heading, without their back quotes."""
    lines = TEXT.split(f"## {heading}\n", 1)[1].split("\n## ")[0].splitlines()
    return re.findall(r"^\| `([\w-]+)` \|", "\n".join(lines), re.MULTILINE)


def test_the_first_example_runs():
    done = subprocess.run([sys.executable, "-c", EXAMPLES[0]], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_is_python(example):
    compile(example, "README.md", "exec")


def test_its_commands_exist():
    block = TEXT.split("## On the command line\n```sh\n", 1)[1].split("```")[0]
    named = set(re.findall(r"^blockserve ([\w-]+)", block, re.MULTILINE))
    assert len(named) > 10 and named == set(get_command(app).commands), "each command once, and no other"


def test_every_notebook_that_ships_is_in_its_table():
    assert set(available()) <= set(table_after("Notebooks"))


def test_its_presets_are_the_presets_in_order():
    assert table_after("Presets: one change a rung") == list(PRESETS)


def test_its_links_lead_somewhere():
    headings = {anchor(heading) for heading in re.findall(r"^## (.+)$", TEXT, re.MULTILINE)}
    links = re.findall(r"\]\(([^)]+)\)", TEXT)
    assert links
    for link in links:
        assert link[1:] in headings if link.startswith("#") else (ROOT / link).is_file(), link
