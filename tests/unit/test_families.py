"""The four families beside arithmetic: what each promises, checked by means of its own, not the generator's."""

from __future__ import annotations

import json
import re
from collections import Counter
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blockserve.workload import facts
from blockserve.workload.algebra import expression
from blockserve.workload.tasks import TASKS, problems, split_of

FAMILIES = ("code", "program", "algebra", "facts")
RUN = ("code", "program")
seeds = st.integers(0, 2**32)


def draw(family: str, seed: int):
    return TASKS[family].generate(np.random.default_rng(seed))


# ------------------------------------------------------------------------------------------- all of them


@pytest.mark.parametrize("family", FAMILIES)
def test_the_reference_answer_is_graded_right(family):
    for problem in problems(TASKS[family], 6 if family in RUN else 200, 0):
        grade = TASKS[family].grade(problem.answer, json.loads(json.dumps(problem.data)))
        assert grade.correct and grade.all_steps_correct, problem


@pytest.mark.parametrize("family", FAMILIES)
def test_another_problems_answer_is_graded_wrong(family):
    drawn = problems(TASKS[family], 6 if family in RUN else 200, 0)
    crossed = [
        TASKS[family].grade(b.answer, a.data).correct
        for a, b in pairwise(drawn)
        if family == "code" or a.answer != b.answer
    ]
    assert sum(crossed) <= 0.1 * len(crossed)  # two equations may have one solution


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("text", ["", " ", "Answer:", "def", "    return", "The facts do not say", "\x00", "é" * 50])
def test_any_text_can_be_graded(family, text):
    (problem,) = problems(TASKS[family], 1, 1)
    assert not TASKS[family].grade(text, problem.data).correct


@pytest.mark.parametrize("family", FAMILIES)
def test_train_and_test_share_no_problem_in_any_wording(family):
    train = {p.core for p in problems(TASKS[family], 2000, 0, "train")}
    test = {p.core for p in problems(TASKS[family], 400, 0, "test")}
    assert not train & test
    assert {split_of(family, core) for core in test} == {"test"}


@pytest.mark.parametrize("family", FAMILIES)
def test_problems_repeat_by_seed_and_are_many(family):
    drawn = problems(TASKS[family], 500, 3)
    assert drawn[:20] == problems(TASKS[family], 20, 3) != problems(TASKS[family], 20, 4)
    assert len({p.prompt for p in drawn}) > 400


@pytest.mark.parametrize("family", FAMILIES)
def test_no_problem_decides_the_accuracy_alone(family):
    cores = [p.core for p in problems(TASKS[family], 1000, 3)]
    assert max(Counter(cores).values()) <= 20, "one in fifty"
    assert all(len(set(cores[i : i + 51])) == 51 for i in range(950))


def test_the_split_never_moves():
    """Were it to move, shipped weights would be tested on what they were trained on."""
    first = {family: [split_of(family, draw(family, seed).core) for seed in range(40)] for family in FAMILIES}
    assert {family: [i for i, split in enumerate(found) if split == "test"] for family, found in first.items()} == TESTS


TESTS = {
    "code": [20, 23, 25, 26, 37],
    "program": [8, 19, 21],
    "algebra": [6, 12, 27, 28],
    "facts": [13, 26, 30],
}


# ------------------------------------------------------------------------------------------- algebra


def value_of(text: str, x: int) -> Fraction:
    """Python's own reading of a side of an equation, in exact numbers."""
    return eval(re.sub(r"\d+", r"Fraction(\g<0>)", re.sub(r"\b[a-z]\b", str(x), text)))


@given(seeds)
def test_every_line_of_algebra_holds_for_the_solution_and_the_last_is_the_solution(seed):
    problem = draw("algebra", seed)
    solution = problem.data["result"]
    for line in problem.data["steps"]:
        left, worked, right = line.split(" = ")
        assert value_of(left, solution) == value_of(worked, 0) == int(right) and 0 <= int(right) <= 30
    assert re.fullmatch(r"[a-z]", problem.data["steps"][-1].split(" = ")[0])
    assert problem.answer.endswith(f" Answer: {solution}")
    left, right = problem.core.split(" = ")
    assert value_of(left, solution) == int(right)
    assert 2 <= len(problem.data["steps"]) <= 6


@given(seeds)
def test_the_prompt_of_algebra_gives_the_whole_equation(seed):
    problem = draw("algebra", seed)
    numbers = re.findall(r"\d+", problem.prompt)
    assert numbers == re.findall(r"\d+", problem.core)
    if "=" in problem.prompt:
        unknown = problem.data["steps"][-1].split(" = ")[0]
        assert re.sub(rf"\b{unknown}\b", "x", problem.prompt).count(problem.core) == 1


def test_sums_are_bracketed_only_where_they_are_scaled():
    assert expression("x", []) == "x"
    assert expression("x", [("*", 2), ("/", 3), ("+", 4)]) == "x * 2 / 3 + 4"
    assert expression("n", [("+", 3), ("-", 2), ("*", 4), ("*", 5)]) == "(n + 3 - 2) * 4 * 5"


def test_lines_of_algebra_are_graded_apart_from_the_result():
    data = {"steps": ["x + 3 = 14 / 2 = 7", "x = 7 - 3 = 4"], "result": 4}
    slip = TASKS["algebra"].grade(" x + 3 = 14 / 2 = 8. x = 7 - 3 = 4. Answer: 4", data)
    assert (slip.correct, slip.steps_correct, slip.steps_expected) == (True, 1, 2)
    wrong = TASKS["algebra"].grade(" x + 3 = 14 / 2 = 7. x = 7 - 3 = 4. Answer: 5", data)
    assert not wrong.correct and wrong.all_steps_correct and wrong.answer == "5"


# ------------------------------------------------------------------------------------------- facts


def told_facts(prompt: str, relation) -> list[tuple[str, str]]:
    """(name, value) of every fact of this kind in the prompt."""
    pattern = re.escape(relation.told).replace(r"\{name\}", r"(\w+)").replace(r"\{value\}", r"(\w+)")
    return re.findall(pattern, prompt)


@given(seeds)
def test_facts_have_one_answer_and_the_prompt_holds_it_or_nothing_does(seed):
    problem = draw("facts", seed)
    asked = []
    for relation in facts.RELATIONS:
        pairs = told_facts(problem.prompt, relation)
        question = re.escape(relation.asked).replace(r"\{name\}", r"(\w+)")
        if found := re.search(question, problem.prompt):
            asked.append([relation.told.format(name=n, value=v) for n, v in pairs if n == found[1]])
    answer = problem.data["answer"]
    assert asked == [[] if answer == facts.UNTOLD else [answer]]


def test_questions_without_an_answer_are_one_in_eight():
    answers = [draw("facts", seed).data["answer"] for seed in range(4000)]
    assert 0.105 < np.mean([a == facts.UNTOLD for a in answers]) < 0.145


@pytest.mark.parametrize(
    ("text", "correct"),
    [
        (" Ana lives in Oslo.", True),
        ("ana lives  in oslo. Ben too.", True),
        (" Ana lives in Oslo", False),
        (" Ana lives in Rome.", False),
        (" The facts do not say.", False),
    ],
)
def test_the_first_sentence_is_the_answer(text, correct):
    assert TASKS["facts"].grade(text, {"answer": "Ana lives in Oslo."}).correct is correct


# ------------------------------------------------------------------------------------------- programs


@pytest.mark.parametrize("family", RUN)
@settings(max_examples=60)
@given(seeds)
def test_programs_are_python_and_their_tests_are_true(family, seed):
    """Run here, without the sandbox: they are the generator's, not a model's."""
    problem = draw(family, seed)
    space: dict = {}
    exec(problem.answer if family == "program" else problem.prompt + problem.answer, space)
    if family == "program":
        assert len(problem.data["tests"]) == 6
        for test in problem.data["tests"]:
            exec(test, space)
        example = re.search(r"(?:xample:?|So) (\w+\(.*)\n$", problem.prompt)[1]
        assert eval(example, space) is True
    else:
        exec(problem.data["test"], space)
        space["check"](space[problem.data["entry_point"]])
        assert problem.data["test"].count("assert") == 6
        with pytest.raises((AssertionError, TypeError)):
            space["check"](lambda *values: object())


WRITTEN = {
    "reverse it": lambda a: list(reversed(a)),
    "sort it from high to low": lambda a: sorted(a)[::-1],
    "keep the items above {k}": lambda a: list(filter((5).__lt__, a)),
    "remove duplicates": lambda a: [v for i, v in enumerate(a) if v not in a[:i]],
}


@pytest.mark.parametrize("words", WRITTEN)
def test_operations_do_what_they_say(words):
    from blockserve.workload.program import LISTS

    (operation,) = (o for o in LISTS.operations if words in o.told)
    values = [3, 8, 3, 12, 0, 7, 8]
    space = {"a": values}
    exec(operation.code.format(k=5), space)
    assert space["a"] == WRITTEN[words](values)


SIGNS = {"add": "+", "subtract": "-", "multiply by": "*", "plus": "+", "minus": "-", "times": "*"}
COMPARED = {"greater than": ">", "less than": "<", "equal to": "==", "at least": ">=", "at most": "<="}


def holds(word: str, value: int) -> bool:
    """A condition in words, read anew."""
    if word in ("even", "odd"):
        return value % 2 == (word == "odd")
    kind, number = word.rsplit(" ", 1)
    return not value % int(number) if kind == "divisible by" else eval(f"{value} {COMPARED[kind]} {number}")


def meant(text: str, space: dict):
    """What a documentation asks for, read from its words alone."""

    def value(word: str) -> int:
        return space[word] if word in space else int(word)

    def worked(phrase: str) -> int:
        left, word, right = phrase.split(" ")
        return eval(f"{value(left)} {SIGNS[word]} {value(right)}")

    if chain := re.fullmatch(r"(?:Take|Start with) (\w+), (.*)\.", text):
        total = value(chain[1])
        for step in chain[2].split(", "):
            word, operand = step.rsplit(" ", 1)
            total = eval(f"{total} {SIGNS[word]} {value(operand)}")
        return total
    if choice := re.fullmatch(r"If (\w+) is (.*) (\w+), return (.*), otherwise (.*)\.", text):
        left, word, right, yes, no = choice.groups()
        return worked(yes if eval(f"{value(left)} {COMPARED[word]} {value(right)}") else no)
    if truth := re.fullmatch(r"Tell whether (\w+) is ([\w ]+?)(?: (and|or) (\w+) is ([\w ]+))?\.", text):
        first = holds(truth[2], value(truth[1]))
        if truth[3] is None:
            return first
        second = holds(truth[5], value(truth[4]))
        return first and second if truth[3] == "and" else first or second
    what, over, words = re.fullmatch(
        r"(?:Count|Add up) (.*) (?:from 1 to|in) (\w+)(?: that are (.*))?\.", text
    ).groups()
    numbers = range(1, space[over] + 1) if "from 1" in text else space[over]
    kept = [v for v in numbers if words is None or holds(words, v)]
    if text.startswith("Count"):
        return len(kept)
    if what == "the squares of the numbers":
        return sum(v * v for v in kept)
    if scaled := re.fullmatch(r"(\d+) (times|more than) the numbers", what):
        return sum(v * int(scaled[1]) if scaled[2] == "times" else v + int(scaled[1]) for v in kept)
    assert what == "the numbers"
    return sum(kept)


@given(seeds)
def test_the_body_does_what_the_documentation_says(seed):
    problem = draw("code", seed)
    names = re.search(r"\((.*)\)", problem.prompt)[1].split(", ")
    space: dict = {}
    exec(problem.prompt + problem.answer, space)
    text = re.search(r'"""(.*)"""', problem.prompt)[1]
    rng = np.random.default_rng(seed)
    is_list = re.search(r" in \w+(?: that|\.)", text) is not None
    for _ in range(4):
        drawn = [rng.integers(0, 21, 6).tolist() if is_list else int(rng.integers(0, 21)) for _ in names]
        got = space[problem.data["entry_point"]](*drawn)
        assert got == meant(text, dict(zip(names, drawn, strict=True))), problem.prompt
