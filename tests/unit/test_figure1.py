"""Figure 1 on demand is what the scheduler does with the same scripted requests, cycle for cycle."""

from __future__ import annotations

import pytest

import blockserve as bs
from blockserve.core import UnknownNameError
from blockserve.scheduling import SchedulingPolicy, TokenBudget
from blockserve.studies.figure1 import EXAMPLES, figure1
from scripted import drive
from test_scheduler import EXAMPLE_1, EXAMPLE_2


@pytest.mark.parametrize(("example", "scripted", "budget"), [(1, EXAMPLE_1, 108), (2, EXAMPLE_2, 72)])
def test_the_schedule_is_the_scripted_one(example, scripted, budget):
    steps = drive(SchedulingPolicy(bound=TokenBudget(budget)), 4, scripted)
    trace = bs.figure1(example)
    assert trace.complete and len(trace) == len(steps)
    for step, cycle in zip(steps, trace.cycle_records, strict=True):
        assert {r.id: (r.slot, r.block, r.width) for r in cycle.rows} == {
            r.request_id: (r.slot, r.block, r.width) for r in step.plan.rows
        }
        assert (dict(cycle.admitted), dict(cycle.evicted)) == (step.admitted, step.evicted)
        assert cycle.refused == dict(step.plan.refused.counts)
        assert cycle.cost <= budget == cycle.budget


def test_what_the_figure_shows_happens_at_the_key_cycles():
    one, two = (figure1(example).cycle_records[EXAMPLES[example].key_cycle :] for example in (1, 2))
    assert one[0].evicted == (("3", "eos"),) and one[1].admitted == (("4", "fits"),)
    assert {r.id: r.slot for r in one[0].rows}["3"] == {r.id: r.slot for r in one[1].rows}["4"], "a refilled slot"
    assert two[0].evicted == (("1", "eos"),) and two[1].admitted == (("4", "fits"), ("5", "fits"))
    assert [(c.batch, c.box_width) for c in two[:2]] == [(3, 24), (4, 18)], "the box shrinks and the batch grows"


def test_it_says_that_it_is_simulated_and_repeats():
    trace = figure1(2)
    assert (trace.run.clock, trace.run.device) == ("virtual", "simulated: one second a pass")
    assert "Figure 1, example 2" in trace.run.workload["name"]
    assert [c.duration for c in trace.cycle_records] == [max(r.steps for r in c.rows) for c in trace.cycle_records]
    assert trace == figure1(2)


def test_another_example_is_refused():
    with pytest.raises(UnknownNameError, match="Known: 1, 2"):
        figure1(3)
