"""CONTRIBUTING.md tells the truth: its example runs, its picture has every floor in order, its commands exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from test_floors import FLOORS

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()


def test_the_example_of_a_policy_runs():
    examples = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert examples
    for example in examples:
        done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_the_picture_shows_the_floors_that_the_test_enforces():
    picture = re.search(r"## Floors\n```\n(.*?)```", TEXT, re.DOTALL).group(1).splitlines()
    assert len(picture) == len(FLOORS)
    for line, groups in zip(reversed(picture), FLOORS, strict=True):
        shown = set(re.findall(r"\w+", line[:66]))
        assert shown == {name for group in groups for name in group}


def test_its_commands_are_targets_of_the_makefile():
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"`make (\w+)`", TEXT)) <= targets


def test_the_files_it_names_exist():
    named = re.findall(r"`((?:tests|execution|checkpoints)/[\w/.]*|\w+\.py)`", TEXT)
    assert named
    for name in named:
        assert (ROOT / name).exists() or (ROOT / "blockserve" / name).exists(), name
