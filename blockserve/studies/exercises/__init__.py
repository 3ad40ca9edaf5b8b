"""The exercises of the teaching notebooks, checked: ``check_exercise("03", 1, answer)``.

No answer is stored. Every check works out what is right by the real scheduler, or by the real model, when it is asked.
"""

from __future__ import annotations

from typing import Any

from blockserve.core import check_choice
from blockserve.studies.exercises import schedules, waits  # noqa: F401  (they fill the table)
from blockserve.studies.exercises.base import CHECKS, Verdict, Wrong


def check_exercise(notebook: str, number: int, answer: Any) -> Verdict:
    """Whether ``answer`` solves exercise ``number`` of a notebook (``"01"`` to ``"05"``), and if not, why not.

    Never raises for a wrong answer, nor for one that itself raises. Raises `UnknownNameError` for an unknown exercise.
    """
    check_choice("exercise", f"{notebook}.{number}", [f"{n}.{k}" for n, k in CHECKS])
    if answer is ...:
        return Verdict(None, "Put your answer in place of the three dots and run this cell again.")
    try:
        return Verdict(True, CHECKS[notebook, number](answer))
    except Wrong as wrong:
        return Verdict(False, str(wrong))
    except Exception as error:  # an answer may be the reader's own function
        return Verdict(False, f"Your answer raised {type(error).__name__}: {error}")
