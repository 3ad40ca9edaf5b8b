"""Accuracy against tokens a forward: every row at its place, its interval round it, the defaults in every panel."""

from __future__ import annotations

import pytest

from blockserve.core import ConfigError
from blockserve.studies.quality import Quality
from blockserve.studies.results import wilson
from blockserve_viz import charts


def row(task: str = "code", accuracy: float = 0.9, forward: float = 3.0, **changed) -> Quality:
    """A row as `evaluate` yields it, at the defaults unless told otherwise."""
    settings = {"block_length": 16, "threshold": 0.9, "cache": "dual", "suffix": 0} | changed
    return Quality(
        task=task,
        limit=96,
        **settings,
        problems=50,
        seed=0,
        device="cpu",
        dtype="float32",
        accuracy=accuracy,
        all_steps=None,
        ended_by_eos=1.0,
        blocks_mean=2.0,
        blocks_max=3,
        blocks_limit=6,
        steps_mean=4.0,
        steps_cv=0.5,
        tokens_per_forward=forward,
    )


ROWS = [
    row(),
    row("facts", 1.0, 1.0),
    row(threshold=0.99, accuracy=0.96, forward=1.5),
    row(threshold=0.5, accuracy=0.5, forward=6.0),
    row("facts", 0.8, 2.0, threshold=0.5),
    row("facts", 1.0, 1.1, suffix="full"),
]


def test_a_panel_a_setting_that_was_varied_and_a_colour_a_task() -> None:
    figure = charts.accuracy(ROWS, "a model")
    assert [note.text for note in figure.layout.annotations] == ["by threshold", "by suffix"]
    code, facts, code_suffix, facts_suffix = figure.data
    assert list(code.x) == [6.0, 3.0, 1.5] and list(code.y) == [50.0, 90.0, 96.0]
    assert list(code.text) == ["0.5", "0.9", "0.99"], "in the order of the values"
    assert list(facts.x) == [2.0, 1.0] and list(facts_suffix.text) == ["0", "full"]
    assert list(code_suffix.x) == [3.0], "a setting that was not varied for a task still shows its default"
    assert code.line.color == code_suffix.line.color != facts.line.color
    assert list(code.marker.size) == [7, 12, 7], "the default is large"


def test_whiskers_are_wilsons_interval() -> None:
    code = charts.accuracy(ROWS).data[0]
    for share, up, down in zip((0.5, 0.9, 0.96), code.error_y.array, code.error_y.arrayminus, strict=True):
        low, high = wilson(share, 50)
        assert (share - low, high - share) == pytest.approx((down / 100, up / 100))


def test_a_measured_chart_is_not_marked_as_simulated() -> None:
    title = charts.accuracy(ROWS, "a model").layout.title.text
    assert "simulated" not in title and "a model, 50 problems a task" in title


def test_the_defaults_alone_are_drawn_and_nothing_is_refused() -> None:
    assert len(charts.accuracy([row()]).data) == 4
    with pytest.raises(ConfigError, match="nothing to draw"):
        charts.accuracy([])
