"""Built-in task families: generators, graders and the train and test split."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockserve.core import ConfigError, UnknownNameError
from blockserve.workload.tasks import TASKS, problems, register_task, resolve, split_of

ARITHMETIC = TASKS["arithmetic"]
seeds = st.integers(0, 2**32)


def draw(seed: int):
    return ARITHMETIC.generate(np.random.default_rng(seed))


@given(seeds)
def test_every_written_step_is_true_and_leads_to_the_result(seed):
    """Python's own arithmetic over the text of the answer, not over the generator's bookkeeping."""
    problem = draw(seed)
    total = int(re.search(r"\d+", problem.prompt).group())
    equations = re.findall(r"(\d+) ([+-]) (\d+) = (\d+)\.", problem.answer)
    for before, sign, amount, after in equations:
        assert int(before) == total
        total = eval(f"{before} {sign} {amount}")
        assert int(after) == total and 0 <= total <= 30
    assert problem.answer.endswith(f" Answer: {total}")
    assert eval(problem.core) == total
    assert 1 <= len(equations) <= 6


@given(seeds)
def test_the_prompt_tells_every_event_in_order(seed):
    problem = draw(seed)
    start, *amounts = (int(n) for n in re.findall(r"\d+", problem.prompt))
    assert [start, *amounts] == [abs(int(n)) for n in re.findall(r"\d+", problem.core)]
    told = re.findall(r" (?:The \w+|[A-Z]\w+) ([a-z]+(?: away)? \d+) \w+:", problem.answer)
    assert len(told) == len(amounts)
    at = 0
    for event in told:
        at = problem.prompt.index(event, at) + len(event)


@given(seeds)
def test_the_reference_answer_is_graded_right(seed):
    problem = draw(seed)
    data = json.loads(json.dumps(problem.data))
    grade = ARITHMETIC.grade(problem.answer, data)
    assert grade.correct and grade.all_steps_correct
    assert grade.steps_expected == problem.answer.count("=")


@given(seeds, st.integers(0, 60))
def test_another_result_is_graded_wrong(seed, wrong):
    problem = draw(seed)
    text = re.sub(r"\d+$", str(wrong), problem.answer)
    grade = ARITHMETIC.grade(text, problem.data)
    assert grade.correct == (wrong == problem.data["result"])
    assert grade.answer == str(wrong) and grade.all_steps_correct


def test_steps_are_graded_apart_from_the_result():
    data = {"steps": ["17 + 8 = 25", "25 - 6 = 19"], "result": 19}
    slip = ARITHMETIC.grade(" Mia buys 8 figs: 17 + 8 = 24. Mia eats 6 figs: 25 - 6 = 19. Answer: 19", data)
    assert (slip.correct, slip.steps_correct, slip.steps_expected) == (True, 1, 2)
    assert not slip.all_steps_correct
    skipped = ARITHMETIC.grade(" Mia eats 6 figs: 25 - 6 = 19. Answer: 19", data)
    assert (skipped.correct, skipped.steps_correct) == (True, 0)


@given(st.text(max_size=80))
def test_any_text_can_be_graded(text):
    grade = ARITHMETIC.grade(text, {"steps": ["2 + 2 = 4"], "result": 4})
    assert grade.correct <= ("Answer:" in text)


def test_an_answer_without_a_result_is_wrong():
    grade = ARITHMETIC.grade(" Mia buys 8 figs: 17 + 8 = 25.", {"steps": ["17 + 8 = 25"], "result": 25})
    assert not grade.correct and grade.answer is None and grade.all_steps_correct


def test_train_and_test_share_no_problem_in_any_wording():
    train = {p.core for p in problems(ARITHMETIC, 4000, 0, "train")}
    test = {p.core for p in problems(ARITHMETIC, 1000, 0, "test")}
    assert not train & test
    assert {split_of("arithmetic", core) for core in train} == {"train"}
    assert {split_of("arithmetic", core) for core in test} == {"test"}


def test_the_split_never_moves():
    """Were it to move, shipped weights would be tested on what they were trained on."""
    cores = [p.core for p in map(draw, range(2000))]
    assert 0.08 < np.mean([split_of("arithmetic", core) == "test" for core in cores]) < 0.12
    sums = (f"{a}+{b}" for a in range(2, 6) for b in range(2, 10))
    assert [core for core in sums if split_of("arithmetic", core) == "test"] == [
        "2+3",
        "2+5",
        "2+8",
        "3+8",
        "4+5",
        "5+3",
    ]


def test_problems_repeat_by_seed_and_grow_at_the_end():
    first = problems(ARITHMETIC, 20, 3)
    assert first == problems(ARITHMETIC, 20, 3) == problems(ARITHMETIC, 50, 3)[:20]
    assert first != problems(ARITHMETIC, 20, 4)
    assert first != problems(ARITHMETIC, 20, 3, "train")


def test_problems_vary():
    drawn = problems(ARITHMETIC, 1000, 0)
    assert len({p.prompt for p in drawn}) > 990
    steps = np.bincount([len(p.data["steps"]) for p in drawn], minlength=7)[1:]
    assert steps.min() > 80
    words = np.array([len(p.prompt.split()) for p in drawn])
    assert words.min() < 10 and words.max() > 70 and words.std() / words.mean() > 0.5
    assert len({p.data["result"] for p in drawn}) == 31
    assert len({p.answer.split()[0] for p in drawn}) > 15


def test_names_of_families():
    assert resolve("arithmetic") == resolve(" arithmetic ,arithmetic") == resolve(["arithmetic"]) == (ARITHMETIC,)
    assert resolve("all") == tuple(TASKS.values())
    with pytest.raises(UnknownNameError, match=r"unknown task 'arithmetik'. Did you mean 'arithmetic'\?"):
        resolve("arithmetik")
    with pytest.raises(ConfigError, match="no task named"):
        resolve([])
    with pytest.raises(UnknownNameError, match="unknown task 3"):
        resolve([3])


def test_a_family_is_registered_once(monkeypatch):
    with pytest.raises(ConfigError, match="already registered"):
        register_task(ARITHMETIC)
    monkeypatch.setattr("blockserve.workload.tasks.TASKS", dict(TASKS))
    register_task(replace(ARITHMETIC, name="more"))
    assert resolve("more")[0].name == "more"


@pytest.mark.parametrize("bad", [{"n": 0}, {"n": 1.5}, {"seed": -1}, {"split": "dev"}])
def test_bad_arguments_are_named(bad):
    with pytest.raises(ConfigError if "split" not in bad else UnknownNameError, match=next(iter(bad))):
        problems(ARITHMETIC, **{"n": 1, "seed": 0} | bad)
