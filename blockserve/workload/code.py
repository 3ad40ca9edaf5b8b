'''The body of a small Python function, from its head and documentation; graded by running it.

Five kinds: a chain of operations, a choice, a loop over a range, a loop over a list, a condition::

    def solve(x, y):
        """Take x, add 3, multiply by y."""
        total = x + 3
        return total * y
'''

from __future__ import annotations

import numpy as np

from blockserve.workload.benchmarks.programs import grade_completion
from blockserve.workload.problems import Problem, TaskFamily, pick

TESTS = 6
NUMBERS = (2, 9)
MOST_OPERATIONS = 6
NAMES = ("solve", "compute", "task", "work", "score", "value", "result", "answer", "measure", "rate")
PAIRS = (("x", "y"), ("a", "b"), ("n", "m"), ("p", "q"), ("u", "v"), ("s", "t"))
LISTS = ("nums", "items", "data", "row", "marks")

# Words and code of each choice; {a} and {b} are the arguments, {k} and {j} numbers.
OPERATIONS = (("add {o}", "+"), ("subtract {o}", "-"), ("multiply by {o}", "*"))
COMPARISONS = (("greater than", ">"), ("less than", "<"), ("equal to", "=="), ("at least", ">="), ("at most", "<="))
CONDITIONS = (
    ("even", "{v} % 2 == 0"),
    ("odd", "{v} % 2 == 1"),
    ("divisible by {k}", "{v} % {k} == 0"),
    ("greater than {k}", "{v} > {k}"),
    ("less than {k}", "{v} < {k}"),
)
TERMS = (
    ("{v}", "the numbers"),
    ("{v} * {v}", "the squares of the numbers"),
    ("{v} * {j}", "{j} times the numbers"),
    ("{v} + {j}", "{j} more than the numbers"),
)

Written = tuple[str, str, tuple[str, ...]]  # documentation, body and arguments, the last two still to be named


def generate(rng: np.random.Generator) -> Problem:
    """Draw one of the five kinds, its names and numbers, and tests whose results are the reference body's own."""
    write, draw = pick(rng, KINDS)
    about, body, arguments = write(rng)
    a, b = (pick(rng, LISTS), "") if arguments == ("list",) else pick(rng, PAIRS)
    about, answer = about.format(a=a, b=b), body.format(a=a, b=b)
    name = pick(rng, NAMES)
    head = f'def {name}({", ".join((a, b)[: len(arguments)])}):\n    """{about}"""\n'
    namespace: dict[str, object] = {}
    exec(head + answer, namespace)  # ours: built from the tables above
    inputs = [tuple(draw(rng) for _ in arguments) for _ in range(TESTS)]
    checks = "".join(f"    assert f{_call(values)} == {namespace[name](*values)!r}\n" for values in inputs)
    data = {"prompt": head, "entry_point": name, "test": f"def check(f):\n{checks}"}
    return Problem(body, head, answer, data)


def _chain(rng: np.random.Generator) -> Written:
    """One to six operations on the first argument, with numbers and the second argument."""
    count = int(rng.integers(1, MOST_OPERATIONS + 1))
    said, lines, at = [], [], "{a}"
    for i in range(count):
        (told, sign), other = pick(rng, OPERATIONS), pick(rng, ("{b}", _number(rng), _number(rng)))
        said.append(told.format(o=other))
        last = i == count - 1
        lines.append(f"    {'return' if last else 'total ='} {at} {sign} {other}")
        at = "total"
    start = pick(rng, ("Take {a}, ", "Start with {a}, "))
    return start + ", ".join(said) + ".", "\n".join(lines), ("int", "int")


def _choice(rng: np.random.Generator) -> Written:
    """One of two results, by a comparison."""
    told, sign = pick(rng, COMPARISONS)
    right = pick(rng, ("{b}", _number(rng)))
    (yes_told, yes), (no_told, no) = _result(rng), _result(rng)
    about = f"If {{a}} is {told} {right}, return {yes_told}, otherwise {no_told}."
    body = f"    if {{a}} {sign} {right}:\n        return {yes}\n    return {no}"
    return about, body, ("int", "int")


def _result(rng: np.random.Generator) -> tuple[str, str]:
    """``{a} plus 3`` and the like, in words and in code."""
    left, right = pick(rng, ("{a}", "{b}")), pick(rng, ("{a}", "{b}", _number(rng), _number(rng)))
    told, sign = pick(rng, (("plus", "+"), ("minus", "-"), ("times", "*")))
    return f"{left} {told} {right}", f"{left} {sign} {right}"


def _range_loop(rng: np.random.Generator) -> Written:
    """A sum over 1 to the argument, of all numbers or of some."""
    term, told = _term(rng)
    over = "    total = 0\n    for i in range(1, {a} + 1):\n"
    if rng.random() < 0.5:
        return f"Add up {told} from 1 to {{a}}.", f"{over}        total += {term}\n    return total", ("int",)
    word, condition = _condition(rng, "i")
    about = f"Add up {told} from 1 to {{a}} that are {word}."
    return about, f"{over}        if {condition}:\n            total += {term}\n    return total", ("int",)


def _list_loop(rng: np.random.Generator) -> Written:
    """A count or a sum over the items that meet a condition."""
    word, condition = _condition(rng, "v")
    term, told = ("1", "") if rng.random() < 0.5 else _term(rng, "v")
    about = f"Add up {told} in {{a}} that are {word}." if told else f"Count the numbers in {{a}} that are {word}."
    result = "total" if told else "count"
    loop = f"    {result} = 0\n    for v in {{a}}:\n        if {condition}:\n            {result} += {term}\n"
    return about, f"{loop}    return {result}", ("list",)


def _truth(rng: np.random.Generator) -> Written:
    """One or two conditions joined by ``and`` or ``or``."""
    word, condition = _condition(rng, "{a}")
    about, body = f"Tell whether {{a}} is {word}", f"    return {condition}"
    if rng.random() < 0.7:
        joined, name = pick(rng, ("and", "or")), pick(rng, ("{a}", "{b}"))
        word, condition = _condition(rng, name)
        about, body = f"{about} {joined} {name} is {word}", f"{body} {joined} {condition}"
    return about + ".", body, ("int", "int")


def _condition(rng: np.random.Generator, v: str) -> tuple[str, str]:
    told, code = pick(rng, CONDITIONS)
    k = _number(rng)
    return told.format(k=k), code.format(v=v, k=k)


def _term(rng: np.random.Generator, v: str = "i") -> tuple[str, str]:
    code, told = pick(rng, TERMS)
    j = _number(rng)
    return code.format(v=v, j=j), told.format(j=j)


def _number(rng: np.random.Generator) -> str:
    return str(rng.integers(NUMBERS[0], NUMBERS[1] + 1))


def _draw_int(rng: np.random.Generator) -> int:
    return int(rng.integers(0, 21))


def _draw_list(rng: np.random.Generator) -> list[int]:
    return rng.integers(0, 21, size=int(rng.integers(0, 9))).tolist()


def _call(values: tuple[object, ...]) -> str:
    return f"({', '.join(map(repr, values))})"


KINDS = (
    (_chain, _draw_int),
    (_chain, _draw_int),  # twice: the most varied kind
    (_choice, _draw_int),
    (_range_loop, _draw_int),
    (_list_loop, _draw_list),
    (_truth, _draw_int),
)

CODE = TaskFamily(
    name="code",
    about="the body of a small Python function from its head and documentation, graded by running it",
    generate=generate,
    grade=grade_completion,
    max_new_tokens=96,
)
