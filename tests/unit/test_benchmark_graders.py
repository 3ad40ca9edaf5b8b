"""The graders of the paper's benchmarks judge as they say, whatever a model writes."""

from __future__ import annotations

from fractions import Fraction

import pytest

from blockserve.workload.benchmarks.catalogue import BENCHMARKS

HUMANEVAL = {
    "prompt": 'import math\n\n\ndef area(side: float) -> float:\n    """The area of a square."""\n',
    "test": "def check(candidate):\n    assert candidate(3) == 9\n    assert candidate(0) == 0\n",
    "entry_point": "area",
}
MBPP = {"tests": ["assert add(0) == 11", "assert add(1) == 12"], "setup": ""}
TRUTHFULQA = {
    "best": "Fish can suffocate in water without oxygen",
    "correct": ["Fish can suffocate in water without oxygen", "Yes, without oxygen"],
    "incorrect": ["No, fish never drown", "Fish cannot suffocate in water"],
}

# --------------------------------------------------------------------------------------------- numbers


@pytest.mark.parametrize(
    ("text", "answer", "correct"),
    [
        ("3 + 4 = 7\n#### 7", "7", True),
        ("#### 7\n\nNext: 8\n#### 8", "7", True),
        ("####  $1,234.50 a year", "1234.5", False),
        ("The answer is 7.", "7", True),
        ("The answer is: $7.00, not 8", "7", True),
        ("he has 16 - 9 = 7", "7", True),
        ("7 of 10", "10", False),
        ("it is 14/2.", "7", True),
        ("#### -7", "-7", False),
        ("#### 7%", "7", True),
        ("####\n7", "7", True),
        ("#### seven", None, False),
        ("", None, False),
        ("9" * 10_000, None, False),
        ("1/0 and 7/0", "7", True),
    ],
)
def test_final_numbers(text, answer, correct):
    grade = BENCHMARKS["gsm8k"].grade(text, {"answer": "7"})
    assert (grade.correct, grade.expected) == (correct, "7")
    assert grade.answer is None if answer is None else Fraction(grade.answer) == Fraction(answer)


def test_commas_and_zeros_do_not_matter():
    assert BENCHMARKS["gsm8k"].grade("#### 1450000.0", {"answer": "1,450,000"}).correct


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (r"\frac{1}{2}", r"\dfrac12"),
        (r"\frac{1}{2}", ".5"),
        (r"\frac{1}{2}", "1/2"),
        (r"-\frac{3}{8}", "-0.375"),
        (r"137 \frac{1}{2}", "137.5"),
        (r"10,\!080", "10080"),
        (r"11,\! 111,\! 100", "11,111,100"),
        (r"\$32,\!348", "32348"),
        (r"\left( 3, \frac{\pi}{2} \right)", r"(3,\frac{\pi}{2})"),
        (r"90^\circ", "90"),
        (r"90^{\circ}", r"90 ^\circ"),
        (r"864 \mbox{ inches}^2", "864"),
        (r"\frac{270}7\text{ degrees}", r"\frac{270}{7}"),
        (r"\text{Evelyn}", "Evelyn"),
        (r"\text{(C)}", "C"),
        ("x=5", "5"),
        (r"x \in [-2,7]", "[-2,7]"),
        (r"11\sqrt2", r"11 \sqrt{2}"),
        ("4210_{5}", "4210_5"),
        (r"x \le 3", r"x\leq 3"),
        (r"\begin{pmatrix} -2 \\ -14 \end{pmatrix}", r"\begin{pmatrix}-2\\-14\end{pmatrix}"),
        (r"\$18.90", "18.9"),
        ("50\\%", "50"),
    ],
)
def test_latex_that_means_the_same_is_the_same(one, other):
    grade = BENCHMARKS["math"].grade
    assert grade(rf"So it is $\boxed{{{one}}}$.", {"answer": other}).correct
    assert grade(rf"So it is $\boxed{{{other}}}$.", {"answer": one}).correct


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("2", "-2"),
        ("(1,2)", "(2,1)"),
        ("x+2", "2+x"),
        ("52_8", "52"),
        (r"\sqrt{2}", "2"),
        ("1,-2", "-2,1"),
        ("1/0", "0"),
    ],
)
def test_latex_that_differs_is_not_the_same(one, other):
    assert not BENCHMARKS["math"].grade(rf"\boxed{{{one}}}", {"answer": other}).correct


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"first \boxed{1}, then \boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed 7 .", "7"),
        (r"\fbox{7}", "7"),
        (r"\boxed{3} and \boxed{4", "3"),
        ("The final answer is $7$. I hope so.", "$7$"),
        ("no result", None),
        ("", None),
    ],
)
def test_what_is_taken_for_maths_answer(text, answer):
    assert BENCHMARKS["math"].grade(text, {"answer": "7"}).answer == answer


def test_any_text_can_be_graded_as_maths():
    for text in ("\\", "\\boxed{", "\\boxed", "{" * 500, "\\boxed{" + "9" * 10_000 + "}", "\\boxed{\\frac}"):
        assert not BENCHMARKS["math"].grade(text, {"answer": "7"}).correct


HEAD = "Here it is:\n"


@pytest.mark.parametrize(
    ("text", "correct"),
    [
        ("    return side * side\n", True),
        ("return side * side", True),
        ("total = 0\n    total += side * side\n    return total", True),
        ("total = side\ntotal *= side\nreturn total", True),
        ("    return side * side\n\nThis squares the side.", True),
        ("    return square(side)\n\n\ndef square(x):\n    return x * x\n\n\nprint(area(", True),
        (HEAD + "```python\ndef area(side):\n    return math.pow(side, 2)\n```\nDone: see above.", True),
        ("```\ndef area(side: float) -> float:\n    return side ** 2", True),
        ("```python\n    return side ** 2\n```", True),
        ("    return side ** 3\n", False),
        ("    pass\n", False),
        ("", False),
        ("I cannot do that.", False),
        ("    exit()\n", False),
    ],
)
def test_completions_are_read_as_models_write_them(text, correct):
    grade = BENCHMARKS["humaneval"].grade(text, HUMANEVAL)
    assert grade.correct == correct and grade.expected == "1 of 1 tests passed"
    assert (grade.answer is None) == (text == "") and grade.steps_expected == 1


@pytest.mark.parametrize(
    ("text", "passed"),
    [
        ("def add(x):\n    return x + 11\n", 2),
        ("def add(x):\n    return x + 11\n```\nTask: the next", 2),
        ("```python\ndef add(x):\n    return x + 11\n```", 2),
        ("def add(x):\n    return x + 11\n\nIt adds eleven.", 2),
        ("def add(x):\n    return 11\n", 1),
        ("def add(x):\n    while True: x +=", 0),
        ("\x00", 0),
        ("(" * 1000, 0),
    ],
)
def test_programs_are_graded_test_by_test(text, passed):
    grade = BENCHMARKS["mbpp"].grade(text, MBPP)
    assert (grade.correct, grade.steps_correct, grade.steps_expected) == (passed == 2, passed, 2)
    assert grade.all_steps_correct == grade.correct and grade.answer.startswith(f"{passed} of 2 tests passed")


@pytest.mark.parametrize(
    ("text", "correct"),
    [
        ("Fish can suffocate in water without oxygen", True),
        ("\nYes, without oxygen they can.\nQ: more", True),
        ("No, fish never drown.", False),
        ("Bananas", False),
        ("  \n", False),
    ],
)
def test_the_nearest_reference_decides(text, correct):
    assert BENCHMARKS["truthfulqa"].grade(text, TRUTHFULQA).correct == correct


def test_the_order_of_words_counts():
    data = {"best": "Air is denser than steam", "correct": ["Air is denser than steam"]}
    data["incorrect"] = ["Steam is denser than air"]
    assert BENCHMARKS["truthfulqa"].grade("air is denser than steam.", data).correct
    assert not BENCHMARKS["truthfulqa"].grade("steam is denser than air.", data).correct
