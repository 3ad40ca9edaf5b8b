"""The teaching notebooks' exercises: unanswered as shipped, right with the solutions, and mistakes are told apart.

That each notebook runs and that its page draws everything is test_shipped's; what it finds is asserted here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import nbformat
import pytest

import blockserve as bs
from blockserve.core import UnknownNameError
from blockserve.report import available, parameters
from blockserve.studies.exercises.base import CHECKS, Verdict
from solutions import MISTAKES, SOLUTIONS

TEACHING = {name[:2]: path for name, path in available().items() if re.match(r"0[1-5]_", name)}
EVERY = sorted(SOLUTIONS)
CALL = re.compile(r'^bs\.check_exercise\("(\d\d)", (\d), answer\)$', re.M)


def exercise_cells(number: str) -> dict[tuple[str, int], str]:
    """(notebook, exercise) → source of its cell."""
    cells = nbformat.read(TEACHING[number], as_version=4).cells
    calls = [(CALL.search(cell.source), cell.source) for cell in cells if "check_exercise" in cell.source]
    return {(call[1], int(call[2])): source for call, source in calls}


def verdict(key: tuple[str, int], answer: str | None = None) -> Verdict:
    """What the notebook's own cell shows, with ``answer`` in place of the three dots."""
    source = exercise_cells(key[0])[key]
    assert source.startswith("answer = ...\n")
    return run(source if answer is None else source.replace("answer = ...", answer, 1))


def run(source: str) -> Verdict:
    """The value of a cell's last line, which is the call of the check."""
    *before, last = source.splitlines()
    names = {"bs": bs}
    exec("\n".join(before), names)
    return eval(last, names)


def test_there_are_five_notebooks_with_three_exercises_each_and_a_solution_of_every_one():
    assert sorted(TEACHING) == ["01", "02", "03", "04", "05"]
    keys = [key for number in TEACHING for key in exercise_cells(number)]
    assert keys == EVERY == sorted(CHECKS) == sorted(MISTAKES)
    assert len(keys) == 15 and {number for _, number in keys} == {1, 2, 3}


@pytest.mark.parametrize("number", TEACHING)
def test_every_exercise_has_a_hint_that_stays_shut_until_asked_for(number):
    cells = nbformat.read(TEACHING[number], as_version=4).cells
    asked = [before.source for before, cell in pairwise(cells) if CALL.search(cell.source)]
    assert len(asked) == 3
    assert all(re.search(r"\n\n<details><summary>Hint</summary>.{20,}</details>$", text) for text in asked)


@pytest.mark.parametrize("key", EVERY)
def test_an_untouched_exercise_is_not_answered_and_raises_nothing(key, record_count):
    found = verdict(key)
    assert not found and found.right is None
    assert "Not answered yet." in repr(found) and "Not answered yet." in found._repr_html_()
    record_count("exercises unanswered as shipped")


@pytest.mark.parametrize("key", EVERY)
def test_the_solution_is_right(key, record_count):
    found = verdict(key, SOLUTIONS[key])
    assert found, found
    record_count("exercises right with the solution")


@pytest.mark.parametrize("key", EVERY)
def test_a_mistake_is_told_what_is_wrong(key, record_count):
    answer, words = MISTAKES[key]
    found = verdict(key, answer)
    assert found.right is False and words in found.message, found
    record_count("exercises whose mistake is explained")


@pytest.mark.parametrize("key", EVERY)
@pytest.mark.parametrize("answer", ["answer = 'four'", "answer = None", "answer = {}", "answer = -1"])
def test_an_answer_of_the_wrong_kind_is_wrong_and_raises_nothing(key, answer):
    found = verdict(key, answer)
    assert found.right is False and found.message


def test_an_unknown_exercise_lists_the_known_ones():
    with pytest.raises(UnknownNameError, match=r"03\.1"):
        bs.check_exercise("03", 4, 1)


def test_a_readers_function_leaves_no_trace_in_the_registries():
    from blockserve.scheduling.admission import FILLS
    from blockserve.scheduling.queue import ORDERS

    before = set(FILLS), set(ORDERS)
    verdict(("05", 1), "answer = lambda request: 1 / 0")
    verdict(("05", 2), "answer = lambda queue, box, bound: list(queue)")
    assert (set(FILLS), set(ORDERS)) == before


def test_scripted_requests_are_checked():
    for scripts, words in (([], "give at least one"), ([bs.Script(4, (2,) * 4)], "the canvas allows 1 to 3")):
        with pytest.raises(bs.BlockServeError, match=words):
            bs.serve_scripts(scripts)


@pytest.fixture(scope="session")
def headline(quick_report):
    """``headline(number)``: what a notebook found at toy size; what it was run with is complete, as in every report."""

    def of(number: str) -> Mapping[str, Any]:
        path = TEACHING[number]
        results = quick_report(path.stem).results
        assert set(results["parameters"]) == set(parameters(path)) and "python" in results["manifest"]["versions"]
        return results["headline"]

    return of


def test_01_surer_rules_take_more_passes_and_the_answers_are_right(headline):
    found = headline("01")
    assert found["correct"] and found["steps_per_block"] == [3, 1]
    passes = {name: rule["row passes a block"] for name, rule in found["rules"].items()}
    thresholds = [passes[f"threshold {tau}"] for tau in (0.5, 0.7, 0.9, 0.99)]
    assert thresholds == sorted(thresholds) and thresholds[0] < 1.5 and thresholds[-1] > 8
    assert passes["quota 4"] == pytest.approx(4, rel=0.05)
    right = {name: rule["right answers"] / rule["of"] for name, rule in found["rules"].items()}
    assert right.pop("quota 4") < 0.8 <= min(right.values())


def test_02_block_scheduling_raises_the_effective_compute_ratio(headline):
    found = headline("02")
    ratio, cycles = found["effective_compute_ratio"], found["cycles"]
    assert ratio["block-fifo"] > ratio["static"] and cycles["block-fifo"] < cycles["static"]
    assert len(found["blocks_needed"]) >= 3, "requests are unlike"


def test_03_the_boxes_of_figure_1_and_the_cycles_of_your_own_requests(headline):
    found = headline("03")
    assert found["figure_1"]["1"][:3] == [[3, 28], [3, 32], [3, 36]]
    assert found["figure_1"]["2"][:2] == [[3, 24], [4, 18]]
    assert found["cycles"] == {"static": 9, "block-fifo": 6, "blockserve-budget": 4}


def test_04_sand_is_quicker_than_a_line_and_a_larger_budget_takes_fewer_cycles(headline):
    found = headline("04")
    assert found["cycles_by_fill"] == {"head_of_line": 8, "sand_strict": 7, "sand": 6}
    assert found["cycles_preempting_and_reserving"] == [5, 6]
    cycles = [line["cycles"] for line in found["by_budget"]]
    assert cycles == sorted(cycles, reverse=True) and cycles[0] > 4 * cycles[-1]
    assert found["by_budget"][-1]["preemptions"] == 0


def test_05_no_policy_changes_a_token(headline):
    found = headline("05")
    assert set(found["same_tokens"].values()) == {24 // 3}
    done = {name: score["all done after [s]"] for name, score in found["simulated"].items()}
    assert done["in line"] == max(done.values()), "standing in line costs most"
