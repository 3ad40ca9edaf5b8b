"""Runs of the shipped notebooks, which several tests look at, and the command line in this process."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

from blockserve import cli
from blockserve.report import ReportResult, available, parameters, run_report


@pytest.fixture(scope="session")
def quick_report(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., ReportResult]:
    """``quick_report(name, **given)``: a shipped notebook at toy size with these parameters; the same run only once."""
    made: dict[str, ReportResult] = {}

    def run(name: str, **given: Any) -> ReportResult:
        known = parameters(available()[name])
        given = ({"quick": True} if "quick" in known else {}) | given
        changed = {key: value for key, value in sorted(given.items()) if value != known[key].default}
        key = json.dumps([name, changed])
        if key not in made:
            made[key] = run_report(name, tmp_path_factory.mktemp(name), changed, progress=False)
        return made[key]

    return run


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """``command("report", …)``: (exit code, standard output, standard error) of ``blockserve`` with these arguments."""

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["blockserve", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        captured = capsys.readouterr()
        return ended.value.code or 0, captured.out, captured.err

    return run
