"""Sample traces: in the package, small, whole, honest about what they are, and of use without torch."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from importlib.resources import files

import pytest

import blockserve as bs
from blockserve.core import UnknownNameError
from blockserve.studies.samples import SAMPLES, record_samples
from blockserve.tracing import Trace


def test_the_player_shows_a_sample_where_torch_is_missing():
    code = (
        "import sys; sys.modules['torch'] = sys.modules['transformers'] = None\n"
        "import blockserve as bs; from blockserve_viz import BatchPlayer, charts\n"
        "trace = bs.sample_trace('arithmetic'); player = BatchPlayer(trace)\n"
        "charts.waste_bars(trace); print(player.meta['cycles'] == len(trace) > 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "True\n", done.stderr


def test_loading_a_sample_does_not_load_torch():
    code = "import sys, blockserve as bs; bs.sample_trace(); print('torch' in sys.modules, 'plotly' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == (
        "False False\n"
    )


@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_is_whole_and_small(name: str):
    trace = bs.sample_trace(name)
    assert trace.complete and len(trace.completion_records) == len(trace.request_records)
    assert all(c.reason in ("eos", "length") for c in trace.completion_records)
    assert all(c.cost <= c.budget for c in trace.cycle_records)
    assert sum(len(c.preempted) for c in trace.cycle_records) > 0, "a preemption to look at"
    assert sum(f.stat().st_size for f in (files("blockserve") / "_samples").iterdir()) < 300_000


def test_the_real_one_is_recorded_token_by_token_and_right():
    trace = bs.sample_trace("arithmetic")
    assert (trace.run.level, trace.run.clock, trace.run.model["name"]) == ("token", "wall", "tiny-llada")
    assert len(trace.request_records) == 16
    for cycle in trace.cycle_records:
        for row in cycle.rows:
            assert [len(step.tokens) for step in row.detail] == list(row.commits)
    correct = [c.correct for c in trace.completion_records]
    assert sum(correct) >= 15


def test_the_simulated_one_says_so_and_is_what_the_code_makes_today(tmp_path, monkeypatch):
    kept = bs.sample_trace("gsm8k")
    assert kept.run.clock == "virtual" and kept.run.device.startswith("simulated")
    monkeypatch.delitem(SAMPLES, "arithmetic")
    (path,) = record_samples(tmp_path)
    made = Trace.load(path)
    assert kept.records[1:] == made.records[1:]
    assert replace(kept.run, versions={}) == replace(made.run, versions={})


def test_an_unknown_sample_lists_the_known_ones():
    with pytest.raises(UnknownNameError, match="Known: arithmetic, gsm8k"):
        bs.sample_trace("gsm9k")
