"""Graders that run what the model wrote: HumanEval and MBPP. See `blockserve.workload.sandbox` for what that guards."""

from __future__ import annotations

import re
import textwrap
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from blockserve.workload.problems import Grade
from blockserve.workload.sandbox import run_tests

FENCE = re.compile(r"^[ \t]*```[^\n`]*$", re.MULTILINE)
INDENT = "    "
MOST_LINES = 400  # of a program; what a model writes within its limit is far below


def code_in(text: str) -> str:
    """The first fenced block (its fence may be left open); all of ``text`` up to a closing fence without one.

    A prompt may end in an open fence, so that the text is the block's inside and holds only the fence that closes it.
    """
    first = FENCE.search(text)
    if first is None:
        return text
    before, rest = text[: first.start()], text[first.end() + 1 :]
    closes = first.group(0).strip() == "```" and before.strip() and FENCE.search(rest) is None
    if closes:
        return before
    last = FENCE.search(rest)
    return rest if last is None else rest[: last.start()]


def longest_program(head: str, code: str) -> str | None:
    """``head`` and as many whole lines of ``code`` as make a program: prose after it and half a statement at the
    limit fall away. ``None`` when not even the first line does."""
    lines = code.split("\n")[:MOST_LINES]
    prefixes = (head + "\n".join(lines[:end]) for end in range(len(lines), 0, -1))
    return next((program for program in prefixes if _parses(program)), None)


def _parses(program: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an invalid escape in somebody else's string
            compile(program, "answer", "exec", dont_inherit=True)  # sees what a mere parse lets pass, as a lone return
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def completed(prompt: str, entry_point: str, text: str) -> str:
    """HumanEval's program: the prompt, then the body that continues it, or the whole function written again.

    The prompt's own function holds only its documentation; one of the same name after it takes its place, and the
    prompt's imports and helpers stay.
    """
    head, code = prompt.rstrip() + "\n", code_in(text).replace("\r\n", "\n").strip("\n")
    readings = [code]
    if not re.search(rf"^def\s+{re.escape(entry_point)}\b", code, re.MULTILINE):
        # A body. What continues a prompt that ends at a line's end may have lost the indent of its first line, or all.
        readings += [INDENT + code, textwrap.indent(code, INDENT)]
    programs = [longest_program(head, reading) for reading in readings]
    # Where none is a program, the interpreter says what is wrong with it.
    return max((program for program in programs if program is not None), key=len, default=head + code)


def grade_completion(text: str, data: Mapping[str, Any]) -> Grade:
    """HumanEval: the program passes ``check(entry_point)``."""
    test = f"{data['test']}\n\ncheck({data['entry_point']})\n"
    return _grade(text, completed(data["prompt"], data["entry_point"], text), [test])


def grade_program(text: str, data: Mapping[str, Any]) -> Grade:
    """MBPP: the program passes every assertion; `Grade.steps_correct` counts those that pass."""
    code = code_in(text).replace("\r\n", "\n")
    return _grade(text, longest_program("", code) or code, data["tests"], data["setup"])


def _grade(text: str, program: str, tests: Sequence[str], setup: str = "") -> Grade:
    """Run it; an empty answer is wrong unrun (HumanEval's prompt alone is a program)."""
    expected = f"{len(tests)} of {len(tests)} tests passed"
    if not text.strip():
        return Grade(False, None, expected, 0, len(tests))
    outcome = run_tests(program, tests, setup=setup)
    answer = f"{outcome.passed} of {outcome.tests} tests passed" + (f": {outcome.failure}" if outcome.failure else "")
    return Grade(outcome.ok, answer, expected, outcome.passed, outcome.tests)
